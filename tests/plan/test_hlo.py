"""Collectives of a compiled program, read from its text."""

import jax
import jax.numpy as jnp
import pytest

from vlc_jax.devices import sharding
from vlc_jax.plan import hlo

TEXT = """HloModule jit_step

%body.1 (p: (s32[], f32[4,8])) -> (s32[], f32[4,8]) {
  %p = (s32[], f32[4,8]) parameter(0)
  %cp = (f32[4,8]{1,0}, f32[4,8]{1,0}, u32[], u32[]) collective-permute-start(%x), metadata={op_name="jit(step)/ring/ppermute" source_file="/home/me/vlc_jax/losses/tiles.py" source_line=12}
  ROOT %t = (s32[], f32[4,8]) tuple(%i, %y)
}

%cond.1 (p: (s32[], f32[4,8])) -> pred[] {
  ROOT %r = pred[] compare(%a, %b)
}

ENTRY %main (a: bf16[16,8]) -> f32[] {
  %ag = bf16[16,8]{1,0:T(8,128)(2,1)} all-gather(%a), replica_groups=[2,4]<=[8], dimensions={0}
  %ags = (bf16[4,8], bf16[16,8]) all-gather-start(%a), replica_groups={{0,1,2,3},{4,5,6,7}}
  %ar = (f32[10], f32[6]) all-reduce(%x, %y), replica_groups={}, to_apply=%add
  %rs = f32[2,8] reduce-scatter(%z), replica_groups=[1,8]<=[8]
  %w = (s32[], f32[4,8]) while(%init), condition=%cond.1, body=%body.1, backend_config={"known_trip_count":{"n":"7"}}
  ROOT %done = f32[] constant(0)
}
"""  # noqa: E501


def test_each_kind_counts_what_a_device_sends_per_trip():
    found = {(each.kind, each.cause): each for each in hlo.collectives(TEXT, 8)}
    ring = found["collective-permute", "ppermute, vlc_jax/losses/tiles.py:12"]
    assert (ring.times, ring.wire_bytes) == (7, 7 * 4 * 8 * 4)
    compiler = "made by the compiler"
    gather = found["all-gather", compiler]
    assert (gather.times, gather.wire_bytes) == (2, 2 * 16 * 8 * 2 * 3 / 4)
    assert found["all-reduce", compiler].wire_bytes == pytest.approx(16 * 4 * 2 * 7 / 8)
    assert found["reduce-scatter", compiler].wire_bytes == 2 * 8 * 4 * 7
    first = hlo.collectives(TEXT, 8)[0]
    assert first.wire_bytes == max(each.wire_bytes for each in found.values())


@pytest.mark.devices
def test_a_real_program_is_read():
    mesh = sharding.make_mesh(data=8)

    def step(x):
        turn = [(i, (i + 1) % 8) for i in range(8)]
        x = jax.lax.fori_loop(0, 5, lambda _, x: jax.lax.ppermute(x, "data", turn), x)
        return jax.lax.psum(x, "data")

    mapped = jax.shard_map(step, mesh=mesh, in_specs=jax.P("data"), out_specs=jax.P())
    text = jax.jit(mapped).lower(jnp.zeros((8 * 32, 4))).compile().as_text()
    found = {each.kind: each for each in hlo.collectives(text, 8)}
    size = 32 * 4 * 4
    assert found["collective-permute"].times == 5
    assert found["collective-permute"].wire_bytes == 5 * size
    assert found["all-reduce"].wire_bytes == pytest.approx(2 * size * 7 / 8)
    assert "ppermute" in found["collective-permute"].cause

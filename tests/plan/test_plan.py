"""--mode plan: the step of a config is compiled from shapes alone, and what it takes is counted."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support import helpers, tiny
from tests.support.marks import slow_but
from vlc_jax.configs import dcsm, hp_hn, negclip, siglip2_dense
from vlc_jax.configs.scenes import captioner, clip, llava, vlm2vec
from vlc_jax.devices import runtime, sharding
from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline import batch as batch_contract
from vlc_jax.plan import plan, step_jaxpr
from vlc_jax.setup import plan_search, resolve
from vlc_jax.setup.state import state_shapes
from vlc_jax.train import compiled_step, flops


def small(**fields):
    return changed(tiny.get_config(), **fields)


def changed(config, **fields):
    config = config.copy_and_resolve_references()
    with config.unlocked():
        config.update_from_flattened_dict({k.replace("__", "."): v for k, v in fields.items()})
    return config


BATCHES = {
    "clip": clip.get_config(),
    "hp_hn": hp_hn.get_config(),
    "dcsm": dcsm.get_config(),
    "hard_images": negclip.get_config("hard_images"),
    "captioner": captioner.get_config(),
    "siglip2_dense": siglip2_dense.get_config(),
    "llava": llava.get_config(),
    "vlm2vec": vlm2vec.get_config(),
}


@pytest.mark.parametrize("config", BATCHES.values(), ids=BATCHES)
def test_shapes_of_a_batch_are_those_that_the_loader_gives(config):
    with config.unlocked():
        config.pretrain, config.frozen, config.init_from = {}, (), None
        config.batch_size = 16
        config.input.scenes.count = 32
    setup = resolve(config, "train")
    loader = setup.training.data.make_loader(0, [])
    real = loader.next(timeout=None)
    loader.close()
    real = {**real, "id": batch_contract.split_ids(real["id"]), "stop": np.zeros(16, bool)}
    shapes = plan_search.batch_shapes(config, setup.mesh, setup.parameters)
    found = {key: (array.shape, array.dtype) for key, array in real.items()}
    assert {key: (shape.shape, shape.dtype) for key, shape in shapes.items()} == found


@functools.cache
def decoder_flops(name, batch_size):
    depths = {"model__image__depth": 1, "model__head__depth": 1}
    config = changed(BATCHES[name], batch_size=batch_size, **depths)
    return flops.count(step_jaxpr._jaxpr(next(plan_search.planned(config)))).model


@pytest.mark.parametrize("name", slow_but(("llava",), ("llava", "vlm2vec")))
def test_a_step_of_a_decoder_is_traced_from_shapes(name):
    assert decoder_flops(name, 16) > 0  # refused where the head misses an input


@pytest.mark.slow
def test_a_plan_compiles_what_training_runs():
    config = small(microbatch=8)
    (planned,) = plan_search.planned(config)
    setup = resolve(config, "train")
    shapes = state_shapes(setup, {})
    state = sharding.put_like(jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes), shapes)
    loader = setup.training.data.make_loader(0, [])
    rows = loader.next(timeout=None)
    loader.close()
    rows = {**rows, "id": batch_contract.split_ids(rows["id"]), "stop": np.zeros(16, bool)}
    batch = sharding.put_batch(setup.mesh, rows)
    real = compiled_step.compile_step(setup, state, {}, batch).program
    found = plan.make(planned)
    assert found.memory.temporaries == real.memory_analysis().temp_size_in_bytes
    assert found.program_bytes == pytest.approx(real.cost_analysis()["bytes accessed"], rel=1e-3)
    assert found.memory.parameters == sum(x.nbytes for x in jax.tree.leaves(state.params))


@pytest.mark.devices
def test_parameters_and_moments_are_divided_by_fsdp():
    one, eight = (next(plan_search.planned(small(mesh__fsdp=n, mesh__data=8 // n))) for n in (1, 8))
    parts = step_jaxpr.program(one).parts  # whose bytes need no program
    whole = {name: sharding.shard_bytes(part) for name, part in parts.items()}
    found = plan.make(eight)
    # those of the small leaves stay whole
    assert whole["parameters"] > 2.5 * found.memory.parameters
    assert whole["moments"] > 2.5 * found.memory.moments
    assert any(each.kind == "all-gather" for each in found.collectives)
    assert found.fits
    assert found.seconds is None  # of a CPU no peak is published


@pytest.mark.devices
def test_flops_of_the_program_are_those_that_are_counted():
    planned = next(plan_search.planned(small(batch_size=clip.get_config().batch_size)))
    compiled = compiled_step.compile_step(
        planned.setup, *step_jaxpr.shapes(planned.setup), planned.batch
    )
    xla = compiled.program.cost_analysis()["flops"]  # of one device
    assert compiled.flops.model / 8 == pytest.approx(xla, rel=0.05)


def test_scores_that_no_loss_reads_are_not_counted():
    """Of a captioner, the log probability of every text given every image."""
    few, many = (decoder_flops("llava", size) for size in (16, 64))
    assert many == pytest.approx(4 * few, rel=1e-3)


def test_a_search_names_what_fits_and_the_largest_sizes(monkeypatch, capsys):
    rooms = {}  # by settings, of steps that nothing compiles

    def make(planned):
        rows = dict(planned.flags).get("microbatch") or planned.batch_size
        used = rows // (2 if "model.remat" in planned.flags else 1)
        rooms[plan._flags(planned)] = used
        memory = plan.Memory(0, 0, 0, 0, 0, total=used, limit=100)
        count = flops.Flops(planned.batch_size, planned.batch_size)
        return plan.Plan(planned, memory, 0.0, flops=count, collectives=())

    monkeypatch.setattr(plan, "make", make)
    monkeypatch.setattr(plan, "describe", lambda plan: "described")
    two = ("model.remat", lambda config, found: ("none", "block"))
    monkeypatch.setitem(plan_search.SEARCHED, "remat", two)
    steps = plan_search.planned(small(batch_size=512), search=("remat", "microbatch"))
    assert plan.run(steps)
    assert "--config.microbatch=64" in rooms
    assert "--config.model.remat=block --config.microbatch=128" in rooms
    assert len(rooms) <= 9
    rooms.clear()
    assert plan.run(plan_search.planned(small(batch_size=512), search=("batch_size",)))
    # 100 rows fit, of multiples of eight devices 96
    assert "largest batch that fits: 96: --config.batch_size=96" in capsys.readouterr().out
    assert len(rooms) <= 7
    monkeypatch.setattr(plan_search, "END", 4)
    assert plan.run(plan_search.planned(small(batch_size=16), search=("batch_size",)))
    text = capsys.readouterr().out
    assert "largest batch that fits: 64, 4 times the config's, where the search ends" in text


@pytest.mark.slow
def test_nothing_that_fits_is_said(monkeypatch, capsys):
    monkeypatch.setattr(runtime, "memory_limit", lambda device: 1.0)
    monkeypatch.setattr(runtime, "all_devices", lambda: jax.devices()[:1])
    assert not plan.run(plan_search.planned(small(batch_size=4), search=("batch_size",)))
    text = capsys.readouterr().out
    assert "largest arrays of the step" in text
    assert "models/layers.py" in text or "conv_general_dilated" in text
    assert text.splitlines()[-1].startswith("nothing fits; lower config.batch")


def test_a_refusal_of_the_compiler_is_read():
    refusal = (
        "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory "
        "required for HLO temporaries (620.00G) exceeds available HBM (15.75G). HLO module: jit"
    )
    assert plan._used(refusal) == 620 * 2**30


def test_what_cannot_be_planned_is_refused():
    with pytest.raises(UsageError, match="unknown setting of --plan_search 'no-such'"):
        list(plan_search.planned(small(), search=("no-such",)))


@pytest.mark.skipif(
    runtime.importlib.util.find_spec("libtpu") is not None, reason="libtpu is installed"
)
def test_without_the_compiler_of_tpus_the_extra_is_named(monkeypatch):
    monkeypatch.delenv("TPU_LIBRARY_PATH", raising=False)
    with pytest.raises(UsageError, match=r"pip install 'vlc_jax\[plan\]'"):
        list(plan_search.planned(small(), "v5e:4x4"))


def test_the_command_needs_no_data_and_no_workdir(tmp_path):
    words = ("-m", "vlc_jax.main", "--mode", "plan", "--config", helpers.TINY)
    nowhere = ("--config.input.source=records", "--config.input.source_options.path=/no/such/file")
    done = helpers.python(*words, *nowhere, code=0)
    assert "GiB" in done.stdout
    assert "the limit is the host's memory" in done.stdout
    for flags, message in (
        (("--workdir", tmp_path / "run"), "leave out --workdir"),
        (("--config.input.source_options.pth=x",), "unknown option of source 'scenes': 'pth'"),
        (("--plan_topology=v5e:2x2,v5e:4x4", "--plan_search=remat"), "--plan_search is for one"),
        (("--plan_step=scores",), "--plan_step"),
        (("--mode=train", "--plan_search=remat"), "--plan_search are for --mode plan"),
    ):
        done = helpers.python(*words, *flags, code=2)
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_scores_are_planned_without_moments(capsys):
    planned = next(plan_search.planned(small(eval__batch_size=32), is_scored=True))
    assert {key: x.shape for key, x in planned.batch.items()} == {
        "image": (32, 40, 40, 3),
        "text": (32, 20),
    }
    found = plan.make(planned)
    params = planned.setup.parameters.shapes
    assert found.memory.parameters == sum(4 * x.size for x in jax.tree.leaves(params))
    assert (found.memory.moments, found.memory.frozen) == (0, 0)
    step = step_jaxpr._jaxpr(next(plan_search.planned(small(batch_size=32))))
    assert 3 * found.flops.model == pytest.approx(flops.count(step).model, rel=0.1)
    assert "batch 32" in plan.describe(found)
    assert "compiling for 1 x cpu: the config as it is" in capsys.readouterr().err
    with pytest.raises(UsageError, match="--plan_search is for training"):
        list(plan_search.planned(small(), search=("remat",), is_scored=True))


@pytest.mark.devices
def test_bytes_of_a_device_are_those_of_its_shards():
    mesh = sharding.make_mesh(data=1, fsdp=8)
    tree = {"a": jnp.zeros((1024, 64)), "b": jnp.zeros(3, jnp.bfloat16)}
    shapes = sharding.place_shapes(mesh, jax.eval_shape(lambda: tree))
    assert sharding.shard_bytes(shapes) == 1024 * 64 * 4 / 8 + 6


def test_stored_features_take_the_place_of_pixels():
    config = dcsm.get_config()
    with config.unlocked():
        config.pretrain, config.init_from, config.batch_size = {}, "runs/a", 16
        config.frozen = ("image", "text")
        config.input.source = "features"
    planned = next(plan_search.planned(config))
    assert "image" not in planned.batch
    tokens = planned.batch["image_tokens"]
    assert (len(tokens.shape), tokens.shape[0], tokens.dtype.name) == (3, 16, "bfloat16")
    assert step_jaxpr.residual_bytes(planned) == 0
    assert plan.make(planned).fits


@pytest.mark.devices
def test_what_a_step_keeps_follows_policy_and_rows(monkeypatch):
    monkeypatch.setattr(runtime, "has_pinned_host", lambda device: True)
    config = small(batch_size=64)
    options = ({}, {"model__remat": "dots"}, {"model__remat": "block"}, {"microbatch": 16})
    steps = (next(plan_search.planned(changed(config, **each))) for each in options)
    plain, dots, block, micro = map(step_jaxpr.residual_bytes, steps)
    assert plain > 1.1 * dots > 1.1 * 1.1 * block
    assert micro == pytest.approx(plain / 4, rel=0.01)  # casts of weights stay
    offload = next(plan_search.planned(changed(config, model__remat="offload")))
    assert step_jaxpr.residual_bytes(offload) == block
    # eight devices with 8 x 64 scores each
    assert step_jaxpr.score_bytes(offload) == 8 * 64 * 4


def test_offload_needs_pinned_memory_and_is_searched_where_it_is(monkeypatch):
    config = small(model__remat="offload")
    assert "offload" not in plan_search.SEARCHED["remat"][1](config, runtime.all_devices())
    with pytest.raises(UsageError, match="pinned host memory, which cpu lacks"):
        resolve(config, "train")
    monkeypatch.setattr(runtime, "has_pinned_host", lambda device: True)
    assert "offload" in plan_search.SEARCHED["remat"][1](config, runtime.all_devices())


@pytest.mark.devices
def test_several_slices_are_a_table(monkeypatch, capsys):
    def make(planned):
        memory = plan.Memory(0, 0, 0, 0, 0, total=1, limit=2)
        return plan.Plan(planned, memory, 0.0, collectives=())

    monkeypatch.setattr(plan, "make", make)
    monkeypatch.setattr(
        runtime, "topology_devices", lambda name: runtime.all_devices()[: int(name)]
    )
    assert plan.table(plan_search.topology_plans(small(batch_size=16), ("1", "3", "8")))
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[1][:3] == ["1", "1", "16"]
    assert "not divisible by 3 devices" in " ".join(rows[2])
    assert rows[3][:3] == ["8", "8", "16"]

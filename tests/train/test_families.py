"""Weights of the families beside CLIP and SigLIP are finetuned: two steps from a file of each."""

import jax
import numpy as np
import pytest

from tests.support import small_models
from tests.support.marks import slow_but
from tests.support.training import first_state
from vlc_jax import models, setup, weights
from vlc_jax.configs import default
from vlc_jax.setup.init_from import architecture
from vlc_jax.train import step as train_step

SIZES = {"width": 8, "heads": 2, "depth": 1, "projection": 6}
POSITIONS = "text_model.embeddings.position_embedding"


def two_tables(arrays, positions, first, later):
    """Arrays with the positions in two tables, of which a model reads the first and later rows."""
    return arrays | {first: arrays[positions], later: arrays[positions]}


def of_long_clip(arrays):
    return two_tables(arrays, "positional_embedding", "positional_embedding",
                      "positional_embedding_res")  # fmt: skip


def of_fg_clip(arrays):
    """Long texts are those of `arrays`, short ones have zeros."""
    arrays = two_tables(arrays, f"{POSITIONS}.weight", f"{POSITIONS}_ori.weight",
                        f"{POSITIONS}_res.weight")  # fmt: skip
    arrays |= {"text_filip_projection.weight": arrays["text_projection.weight"]}
    short = {f"{POSITIONS}.weight": np.zeros((77, 8)), "text_projection.weight": np.zeros((6, 8))}
    return arrays | short


# family -> variant, its own fields, tokens, format of its file, changes of the file
FAMILIES = {
    "pe": ("PE-Core-B/16", {"image": {"pool_heads": 2}}, 7, "open_clip_pe", None),
    "openvision": ("OpenVision-B/16", {}, 7, "openai", None),
    "metaclip_2": ("B/32", {"activation": "gelu"}, 7, "hf_clip", None),
    "long_clip": ("B/32", {}, 248, "openai", of_long_clip),
    "fg_clip": ("B/32", {}, 248, "hf_clip", of_fg_clip),
}


@pytest.mark.parametrize("family", slow_but(("pe",), FAMILIES))
def test_two_steps_change_every_parameter_of_both_towers(tmp_path, family):
    variant, fields, length, format_, change = FAMILIES[family]
    image = {**SIZES, "image_size": 8, "patch_size": 4, **fields.get("image", {})}
    text = {**SIZES, "vocab_size": 9, "context_length": length, "eos_id": 2}
    model = models.build("clip", variant, **{**fields, "image": image, "text": text})
    written = small_models.parameters(model, 0.3)
    arrays = weights.save(written, format_, architecture(model))
    np.savez(tmp_path / "w.npz", **(change(arrays) if change else arrays))
    params = weights.load(tmp_path / "w.npz", written, architecture(model))[0]
    jax.tree.map(np.testing.assert_array_equal, params, written)

    config = default.get_config()
    config.batch_size, config.init_from = 8, str(tmp_path / "w.npz")
    config.optimizer.warmup_steps = 1
    config.optimizer.weight_decay = 0.0  # or a matrix without a gradient would change, too
    run = setup.step_setup(config, model, 10)._replace(normalise=lambda image: image)
    rng = np.random.default_rng(0)
    ids = rng.integers(3, 9, (8, length)).astype(np.int32)
    ids[:, -1] = 2
    batch = {"image": rng.normal(size=(8, 8, 8, 3)).astype(np.float32), "text": ids,
             "mask": np.ones(8, bool), "stop": np.zeros(8, bool)}  # fmt: skip
    state, frozen = first_state(run, params)
    assert not frozen
    step = jax.jit(train_step.make_step(run))
    for _ in range(2):
        state, metrics = step(state, frozen, batch)
        assert np.isfinite(metrics["loss"])
    changed = jax.tree.map(lambda x, y: x != y, jax.device_get(state.params), params)
    for path, array in jax.tree.leaves_with_path(changed):
        assert np.any(array), path
    assert changed["text"]["position_embedding"].any(axis=1).all()

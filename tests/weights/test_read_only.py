"""Files that are read, not written: Long-CLIP and FG-CLIP, with text positions in two tables,
PE-Core as its authors publish it, and OpenVision's JAX checkpoints."""

import jax
import numpy as np
import pytest

from tests.support import small_models
from tests.support.openvision import flax_tree, write_orbax
from vlc_jax import models, weights
from vlc_jax.errors import WeightsError
from vlc_jax.models import vit
from vlc_jax.setup.init_from import architecture
from vlc_jax.weights import openai, orbax_folder, rename

SMALL = {"width": 8, "heads": 2, "depth": 1, "projection": 6}
FIRST, LATER = (np.random.default_rng(seed).normal(size=(248, 8)) for seed in (1, 2))
JOINED = np.concatenate([FIRST[:20], LATER[20:]]).astype(np.float32)


def clip(context_length):
    """A model, and random parameters of it."""
    model = models.build(
        "clip",
        "B/32",
        image={**SMALL, "image_size": 8, "patch_size": 4},
        text={**SMALL, "vocab_size": 9, "context_length": context_length, "eos_id": 8},
    )
    return model, small_models.parameters(model, 0.1)


def load(path, model, params):
    return weights.load(path, params, architecture(model))


def test_long_clip_has_positions_in_two_tables(tmp_path):
    model, params = clip(248)
    arrays = weights.save(params, "openai", architecture(model))
    arrays |= {"positional_embedding": FIRST, "positional_embedding_res": LATER}
    np.savez(tmp_path / "w.npz", **arrays)
    found, name = load(tmp_path / "w.npz", model, params)
    assert name == "openai"
    assert (
        weights.sizes.read(weights.shapes_of(*weights.read(tmp_path / "w.npz"))).context_length
        == 248
    )
    params["text"]["position_embedding"] = JOINED
    jax.tree.map(np.testing.assert_array_equal, found, params)
    np.savez(tmp_path / "w.npz", **arrays | {"positional_embedding_res": LATER[:77]})
    with pytest.raises(WeightsError, match=r"shapes \(248, 8\) and \(77, 8\): they must be one"):
        load(tmp_path / "w.npz", model, params)


@pytest.mark.parametrize("context_length", [77, 248])
def test_fg_clip_has_positions_and_projection_of_long_texts(tmp_path, context_length):
    model, params = clip(77)
    arrays = weights.save(params, "hf_clip", architecture(model))
    positions = "text_model.embeddings.position_embedding"
    long_projection = np.random.default_rng(3).normal(size=(6, 8)).astype(np.float32)
    arrays |= {f"{positions}_ori.weight": FIRST, f"{positions}_res.weight": LATER}
    arrays |= {"text_filip_projection.weight": long_projection}
    arrays |= {f"logit_scale_{name}": np.zeros(()) for name in ("finegraind", "hardneg")}
    np.savez(tmp_path / "w.npz", **arrays)
    assert (
        weights.sizes.read(weights.shapes_of(*weights.read(tmp_path / "w.npz"))).context_length
        == 77
    )
    model = clip(context_length)[0]
    shapes = clip(context_length)[1]
    found, name = load(tmp_path / "w.npz", model, shapes)
    assert name == "hf_fg_clip"
    if context_length == 248:
        params["text"]["position_embedding"] = JOINED
        params["text"]["projection"]["kernel"] = long_projection.T
    jax.tree.map(np.testing.assert_array_equal, found, params)
    only_image = weights.load(tmp_path / "w.npz", {"image": shapes["image"]}, architecture(model))[
        0
    ]
    jax.tree.map(np.testing.assert_array_equal, only_image["image"], params["image"])


def test_pe_of_its_authors_has_a_projection_without_bias(tmp_path):
    image = {"image_size": 8, "patch_size": 4, "pool_heads": 2}
    text = {"vocab_size": 9, "context_length": 5, "eos_id": 8}
    model = models.build("clip", "PE-Core-B/16", image=SMALL | image, text=SMALL | text)
    params = small_models.parameters(model, 0.1)
    params["image"]["projection"]["bias"] = np.zeros(6, np.float32)
    arrays = rename.save(openai.pe_rules(), rename.flatten(params))
    del arrays["visual.proj.bias"]
    np.savez(tmp_path / "w.npz", **arrays)
    found, name = load(tmp_path / "w.npz", model, params)
    assert name == "pe"
    jax.tree.map(np.testing.assert_array_equal, found, params)


def openvision():
    """A model, and random parameters of it with the positions that its authors compute."""
    image = {**SMALL, "image_size": 12, "patch_size": 4, "depth": 2}
    text = {**SMALL, "vocab_size": 9, "context_length": 5}
    model = models.build("clip", "OpenVision-B/16", image=image, text=text)
    params = small_models.parameters(model, 0.1)
    table = np.concatenate([np.zeros((1, 8)), vit.sincos2d(3, 8)])
    params["image"]["position_embedding"] = table.astype(np.float32)
    return model, params


@pytest.mark.parametrize("heads", [None, 2])
def test_openvisions_jax_checkpoint_equals_open_clips_file(tmp_path, heads):
    model, params = openvision()
    arrays = weights.save(params, "openai", architecture(model))
    np.savez(tmp_path / "open_clip.npz", **arrays)
    write_orbax(tmp_path, flax_tree(arrays, heads))
    of_open_clip = load(tmp_path / "open_clip.npz", model, params)[0]
    found, name = load(tmp_path, model, params)
    assert name == "openvision"
    assert found["image"]["position_embedding"].shape == (10, 8)
    jax.tree.map(np.testing.assert_array_equal, found, of_open_clip)
    sizes = weights.sizes.read(weights.shapes_of(*weights.read(tmp_path, only_shapes=True)))
    assert sizes == ((8, 2), (8, 1), 4, 0, 9, 5)
    only_image = load(tmp_path, model, {"image": params["image"]})[0]
    jax.tree.map(np.testing.assert_array_equal, only_image, {"image": found["image"]})


def test_openvisions_jax_checkpoint_has_the_models_positions(tmp_path):
    model, params = openvision()
    arrays = weights.save(params, "openai", architecture(model))
    write_orbax(tmp_path, flax_tree(arrays))
    larger = models.build(
        "clip",
        "OpenVision-B/16",
        image={**SMALL, "image_size": 20, "patch_size": 4, "depth": 2},
        text={**SMALL, "vocab_size": 9, "context_length": 5},
    )
    shapes = jax.eval_shape(lambda key: models.init(larger, key), jax.random.key(0))
    table = load(tmp_path, larger, shapes)[0]["image"]["position_embedding"]
    np.testing.assert_array_equal(table[0], 0)
    np.testing.assert_array_equal(table[1:], vit.sincos2d(5, 8))


@pytest.mark.parametrize("names", ["a", "ab"])
def test_a_folder_of_runs_is_refused_with_their_names(tmp_path, names):
    for name in names:
        (state := tmp_path / name / "checkpoints/9/state").mkdir(parents=True)
        (state / "manifest.ocdbt").touch()
    with pytest.raises(WeightsError, match=f"folder of runs: .* such as {', '.join(names)}$"):
        orbax_folder.find(tmp_path)
    assert orbax_folder.find(tmp_path / "a/checkpoints") == [tmp_path / "a/checkpoints/9/state"]


def test_a_damaged_or_ambiguous_orbax_folder_is_refused(tmp_path):
    model, params = openvision()
    arrays = weights.save(params, "openai", architecture(model))
    tree = flax_tree(arrays)
    write_orbax(tmp_path / "whole", tree)
    checkpoint = tmp_path / "whole" / "jax_orbax_weight" / "checkpoint.npz" / "7" / "default"
    assert load(checkpoint, model, params)[1] == "openvision"
    write_orbax(tmp_path / "whole", tree, step=8)
    with pytest.raises(WeightsError, match=r"holds 2 Orbax checkpoints, name one of jax_orbax"):
        load(tmp_path / "whole", model, params)
    tree["img"]["extra"] = np.ones(2, np.float32)
    write_orbax(tmp_path / "more", tree)
    with pytest.raises(WeightsError, match=r"1 in the file, but no parameter.*params/img/extra"):
        load(tmp_path / "more", model, params)
    (checkpoint / "manifest.ocdbt").write_bytes(b"no database")
    with pytest.raises(WeightsError, match="is damaged, or no Orbax checkpoint"):
        load(checkpoint, model, params)

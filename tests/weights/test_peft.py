"""Adapters under the names of PEFT; tests/parity has PEFT itself load them."""

import json

import numpy as np
import pytest
import safetensors.numpy

from vlc_jax import weights
from vlc_jax.errors import WeightsError

ARCHITECTURE = weights.Architecture({"image": 2, "text": 2})
CLIP, SIGLIP = (weights.FORMATS[name].rules(ARCHITECTURE) for name in ("hf_clip", "hf_siglip"))
LAYER = "base_model.model.vision_model.encoder.layers.1.self_attn"


def adapter(inputs, outputs, rank=3, magnitude=False):
    rng = np.random.default_rng(0)
    matrices = {"a": rng.normal(size=(inputs, rank)), "b": rng.normal(size=(rank, outputs))}
    return matrices | ({"magnitude": rng.normal(size=outputs)} if magnitude else {})


def test_a_dense_layer_is_transposed():
    ours = adapter(8, 6, magnitude=True)
    theirs = weights.peft.save({"image/projection/kernel": ours}, CLIP)
    prefix = "base_model.model.visual_projection.lora_"
    assert set(theirs) == {
        f"{prefix}{part}" for part in ("A.weight", "B.weight", "magnitude_vector")
    }
    np.testing.assert_array_equal(theirs[f"{prefix}A.weight"], np.float32(ours["a"].T))
    np.testing.assert_array_equal(theirs[f"{prefix}B.weight"], np.float32(ours["b"].T))
    assert theirs[f"{prefix}magnitude_vector"].shape == (6,)


@pytest.mark.parametrize(("ours", "theirs"), [("query", "q"), ("key", "k"), ("value", "v")])
def test_each_head_matrix_is_a_module_of_its_own(ours, theirs):
    arrays = weights.peft.save({f"image/block_1/attention/{ours}/kernel": adapter(8, 8)}, CLIP)
    assert set(arrays) == {f"{LAYER}.{theirs}_proj.lora_{part}.weight" for part in "AB"}


def test_the_packed_matrix_becomes_three_modules_that_share_a():
    ours = adapter(8, 24)
    arrays = weights.peft.save({"image/block_1/attention/query_key_value/kernel": ours}, CLIP)
    for index, name in enumerate("qkv"):
        a, b = (arrays[f"{LAYER}.{name}_proj.lora_{part}.weight"] for part in "AB")
        np.testing.assert_array_equal(a, np.float32(ours["a"].T))
        np.testing.assert_array_equal(b, np.float32(ours["b"][:, 8 * index : 8 * index + 8].T))


def test_a_patch_embedding_is_a_convolution():
    name = "image/patch_embedding/kernel"
    arrays = weights.peft.save({name: adapter(4 * 4 * 3, 8, magnitude=True)}, CLIP)
    assert sorted(x.shape for x in arrays.values()) == [(1, 8, 1, 1), (3, 3, 4, 4), (8, 3, 1, 1)]


@pytest.mark.parametrize(
    "name",
    [
        "image/pooling/attention/query/kernel",
        "image/patch_embedding/convolution/kernel",
        "image/stem_0/kernel",
        "text/head/kernel",
    ],
)
def test_a_matrix_without_a_module_is_refused_by_name(name):
    with pytest.raises(WeightsError, match=f"no module for the adapter of {name}"):
        weights.peft.save({name: adapter(8, 8)}, SIGLIP)


def test_the_config_names_the_modules_and_says_dora():
    arrays = weights.peft.save({"text/projection/kernel": adapter(8, 6, magnitude=True)}, CLIP)
    config = weights.peft.config(arrays, rank=3, alpha=6.0, base="some/folder")
    assert config["target_modules"] == ["text_projection"]
    assert config["use_dora"]
    assert (config["r"], config["lora_alpha"]) == (3, 6.0)


def write(folder, *, without="", **settings):
    """A folder as PEFT writes it; without: the end of the names of arrays that it lacks."""
    arrays = weights.peft.save({"text/projection/kernel": adapter(8, 6, magnitude=True)}, CLIP)
    arrays = {name: x for name, x in arrays.items() if not (without and name.endswith(without))}
    safetensors.numpy.save_file(arrays, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"r": 3, "use_dora": True} | settings))
    return folder


@pytest.mark.parametrize("init", [True, False, None, "gaussian", "orthogonal", "eva", "mica"])
def test_an_adapter_of_an_unchanged_base_is_read(init, tmp_path):
    off = {"modules_to_save": None, "new_option": False, "rank_pattern": {}, "qalora_group_size": 8}
    config, modules = weights.peft.read(write(tmp_path, init_lora_weights=init, **off))
    assert (config["r"], config["lora_alpha"], len(modules["text_projection"])) == (3, 8, 3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        *(
            ({"init_lora_weights": init}, f"init_lora_weights='{init}' changed the base")
            for init in ("pissa", "pissa_niter_4", "olora", "corda", "loftq", "lora_ga", "new")
        ),
        ({"peft_type": "LOHA"}, "peft_type=LOHA"),
        ({"bias": "lora_only"}, "bias=lora_only"),
        ({"layer_replication": [[0, 2]]}, "layer_replication="),
        ({"new_option": True}, "new_option=True of an adapter is not supported"),
        ({"r": 4}, "has r 4, .* the shape"),
        ({"lora_alpha": "8"}, "lora_alpha is '8'; only a number"),
        ({"use_dora": False}, "text_projection has A, B, magnitude_vector; only .* A, B is"),
        ({"without": "magnitude_vector"}, "has A, B; only a module with A, B, magnitude_vector"),
        ({"without": "lora_B.weight"}, "has A, magnitude_vector; only"),
    ],
    ids=str,
)
def test_an_adapter_that_computes_something_else_is_refused(settings, message, tmp_path):
    with pytest.raises(WeightsError, match=message) as error:
        weights.peft.read(write(tmp_path, **settings))
    assert str(tmp_path) in str(error.value)

"""Folders of LLaVA and language models: round trips, memory, dtypes, published configs."""

import functools
import json

import jax
import ml_dtypes
import numpy as np
import pytest

from tests.support import helpers, instructblip, plain_llava
from tests.support.archives import tensor
from tests.support.small_models import GEMMA, GEMMA3, IMAGE, LM, SIGLIP, normal
from vlc_jax.encode import text_encoders
from vlc_jax.errors import WeightsError
from vlc_jax.models import lm
from vlc_jax.setup import llava_config
from vlc_jax.weights import files, huggingface, llava_sizes, lm_adapter, rename
from vlc_jax.weights import llava as weights

LLAVA = {
    "family": "llama",
    "lm": LM,
    "kind": "llava",
    "image": IMAGE,
    "layer": -2,
    "image_id": 50,
    "select": "patch",
}
OVER_SIGLIP = {"image": SIGLIP, "layer": -1, "image_id": 60, "select": "patch"}
PALIGEMMA = {"family": "gemma", "lm": LM | GEMMA, "kind": "paligemma", **OVER_SIGLIP}
OVER_GEMMA3 = {"family": "gemma3_text", "lm": LM | GEMMA3, "kind": "gemma3", "side": 1,
               **OVER_SIGLIP}  # fmt: skip


def shapes_of(sizes):
    if sizes.get("kind") == "instructblip":
        return instructblip.shapes(sizes)
    if "image" in sizes:
        return jax.eval_shape(
            functools.partial(plain_llava.init, plain_llava.build(sizes)), jax.random.key(0)
        )
    decoder = lm.from_sizes(sizes["lm"])
    return {"lm": jax.eval_shape(functools.partial(lm.init, decoder), jax.random.key(0))}


def assert_same(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "sizes",
    [
        LLAVA,
        LLAVA | {"family": "phi3", "select": "cls_patch"},
        LLAVA | {"select": "cls"},
        {"family": "gemma", "lm": LM | GEMMA},
        {"family": "gemma", "lm": LM | GEMMA | {"head_width": None}},
        {"family": "gemma3_text", "lm": LM | GEMMA3 | {"scaling": None, "scale_width": None}},
        PALIGEMMA,
        OVER_GEMMA3,
        instructblip.SIZES,
    ],
    ids=[
        "llava",
        "fused",
        "cls",
        "gemma",
        "gemma_plain",
        "gemma3_text",
        "paligemma",
        "gemma3",
        "instructblip",
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_what_is_written_is_read(tmp_path, sizes, dtype):
    shapes = shapes_of(sizes)
    params = normal(shapes, dtype=dtype)
    weights.save(params, sizes, tmp_path, max_shard_bytes=5_000)
    assert len(list(tmp_path.glob("model-*-of-*.safetensors"))) > 1
    read = weights.read_sizes(tmp_path)
    if sizes.get("layer") == -2:  # the last block of the tower is not written
        assert read == sizes | {"image": IMAGE | {"depth": 2}, "layer": -1}
    else:
        assert read == sizes
    assert_same(weights.load(tmp_path, read, shapes_of(read)), params)


def test_the_image_tower_of_paligemma_is_that_of_siglips_files(tmp_path):
    params = normal(shapes_of(PALIGEMMA))
    weights.save(params, PALIGEMMA, tmp_path)
    names = {name.partition("vision_tower.")[2]: x for name, x in files.read(tmp_path).items()}
    tower = {name: x for name, x in names.items() if name}
    expected = rename.flatten({"image": params["image"]})
    rules = huggingface.siglip_rules()
    found = rename.load(rules, tower, dict.fromkeys(expected, ()))
    assert_same(found, expected)


def test_parameters_are_put_one_by_one_and_converted(tmp_path):
    params = normal(shapes_of(LLAVA))
    weights.save(params, LLAVA, tmp_path)
    sizes = weights.read_sizes(tmp_path)
    order = []

    def put(path, array):
        order.append(path)
        return array.shape

    placed = weights.load(tmp_path, sizes, shapes_of(sizes), put=put, dtype=ml_dtypes.bfloat16)
    assert placed["lm"]["blocks"]["gate"]["kernel"] == (3, 16, 24)
    assert len(order) == len(set(order)) == len(jax.tree.leaves(params))
    loaded = weights.load(tmp_path, sizes, shapes_of(sizes), dtype=ml_dtypes.bfloat16)
    assert {x.dtype.name for x in jax.tree.leaves(loaded)} == {"bfloat16"}


def as_torch_archives(folder, torch_save):
    """The folder's shards of safetensors as those of torch."""
    shards = sorted(folder.glob("*.safetensors"))
    assert len(shards) > 1
    places = {}
    for shard in shards:
        arrays = weights.safetensors.numpy.load_file(shard)
        saved = torch_save({name: tensor(array) for name, array in arrays.items()}, "saved.pt")
        saved.rename(name := shard.with_suffix(".bin"))
        places |= dict.fromkeys(arrays, name.name)
        shard.unlink()
    (folder / "model.safetensors.index.json").unlink()
    index = json.dumps({"weight_map": places})
    (folder / "pytorch_model.bin.index.json").write_text(index)


@pytest.mark.parametrize("suffix", ["safetensors", "bin"])
def test_host_memory_is_that_of_one_stacked_array(tmp_path, torch_save, suffix):
    sizes = {"family": "llama", "lm": LM | {"depth": 8, "width": 128, "mlp_width": 512}}
    params, shapes = normal(shapes_of(sizes)), shapes_of(sizes)
    weights.save(params, sizes, tmp_path, max_shard_bytes=3_000_000)
    if suffix == "bin":
        as_torch_archives(tmp_path, torch_save)
    largest = max(x.nbytes for x in jax.tree.leaves(params))
    total = sum(x.nbytes for x in jax.tree.leaves(params))
    assert 1.8 * largest < 0.5 * total
    with helpers.memory_below(1.8 * largest):
        weights.load(tmp_path, sizes, shapes, put=lambda path, array: path)
    assert_same(weights.load(tmp_path, sizes, shapes), params)


def test_a_changed_number_in_a_torch_archive_is_found(tmp_path, torch_save):
    path = torch_save(
        {"a": tensor(np.arange(1000, dtype=np.float32)), "b": tensor(np.ones(2, np.int8))}
    )
    np.testing.assert_array_equal(files.open_arrays(path)["a"], np.arange(1000))
    content = bytearray(path.read_bytes())
    content[content.index(np.float32(500).tobytes())] ^= 1
    path.write_bytes(content)
    with pytest.raises(WeightsError, match=r"damaged.*: Bad CRC-32 for file 'weights/data/"):
        files.open_arrays(path)


LAYER = "model.layers.1.mlp.up_proj.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.update(other=a[LAYER]), "1 in the file, but no parameter.*: other"),
        (lambda a: a.pop(LAYER), "1 not in the file: lm.layers.1.mlp.up_proj"),
        (
            lambda a: a.update({LAYER.replace("1", "7"): a.pop(LAYER)}),
            "1 not in the file.*layers.1.*no parameter.*layers.7",
        ),
        (lambda a: a.update({LAYER: a[LAYER].T.copy()}), r"up_proj.weight gives .*\(3, 24, 16\)"),
        (lambda a: a.update({LAYER: a[LAYER] / 0}), "up_proj.weight is not finite"),
        (lambda a: a.update({LAYER.removeprefix("model."): a[LAYER]}), "are the same parameter"),
    ],
    ids=["leftover", "missing", "hole", "shape", "infinite", "twice"],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_files_that_do_not_fit_are_refused(tmp_path, change, message):
    sizes = {"family": "llama", "lm": LM}
    weights.save(normal(shapes_of(sizes)), sizes, tmp_path)
    arrays = dict(files.open_arrays(tmp_path))
    change(arrays)
    weights.safetensors.numpy.save_file(arrays, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match=message):
        weights.load(tmp_path, sizes, shapes_of(sizes))


def test_a_tree_with_more_is_not_written(tmp_path):
    params = normal(shapes_of(LLAVA)) | {"resampler": {"kernel": np.zeros((2, 2))}}
    with pytest.raises(WeightsError, match="no name for: resampler/kernel"):
        weights.save(params, LLAVA, tmp_path)


def count(sizes):
    return sum(int(np.prod(x.shape)) for x in jax.tree.leaves(shapes_of(sizes)))


def test_published_configs_with_what_they_leave_out():
    """As llava-hf/llava-1.5-7b-hf and liuhaotian/llava-v1.5-7b write them."""
    sizes = llava_sizes.read(PUBLISHED["llava"])
    assert count(sizes) == 7_063_427_072 - 12_596_224  # without the tower's last block
    llama = {"hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 32}
    original = llava_sizes.read(
        {
            "model_type": "llava_llama",
            "mm_projector_type": "mlp2x_gelu",
            **llama,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "vocab_size": 32_000,
            "mm_vision_tower": "openai/clip-vit-large-patch14-336",
            "rms_norm_eps": 1e-5,
            "mm_vision_select_layer": -2,
            "mm_vision_select_feature": "cls",
        }
    )
    assert count(sizes) - count(original) == 2 * 64 * 4096
    assert (original["select"], original["image_id"]) == ("cls", -200)
    assert original["image"] == sizes["image"]


# As google/paligemma-3b-pt-224 and google/gemma-3-4b-it write them.
_SO400M = {"hidden_size": 1152, "intermediate_size": 4304, "num_attention_heads": 16,
           "num_hidden_layers": 27, "patch_size": 14,
           "model_type": "siglip_vision_model"}  # fmt: skip
PUBLISHED = {
    "llava": {
        "model_type": "llava",
        "image_token_index": 32_000,
        "text_config": {"model_type": "llama", "rms_norm_eps": 1e-5, "vocab_size": 32_064},
        "vision_feature_layer": -2,
        "vision_feature_select_strategy": "default",
        "projector_hidden_act": "gelu",
        "vision_config": {"model_type": "clip_vision_model"},
    },
    "paligemma": {
        "model_type": "paligemma",
        "image_token_index": 257_152,
        "projection_dim": 2048,
        "text_config": {
            "model_type": "gemma",
            "hidden_size": 2048,
            "intermediate_size": 16_384,
            "num_attention_heads": 8,
            "num_hidden_layers": 18,
            "num_key_value_heads": 1,
            "vocab_size": 257_216,
        },
        "vision_config": _SO400M | {"vision_use_head": False, "projection_dim": 2048},
    },
    "gemma3": {
        "model_type": "gemma3",
        "boi_token_index": 255_999,
        "eoi_token_index": 256_000,
        "image_token_index": 262_144,
        "mm_tokens_per_image": 256,
        "text_config": {
            "model_type": "gemma3_text",
            "hidden_size": 2560,
            "intermediate_size": 10_240,
            "num_hidden_layers": 34,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "sliding_window": 1024,
        },
        "vision_config": _SO400M | {"image_size": 896, "vision_use_head": False},
    },
    "instructblip": instructblip.PUBLISHED,
}


@pytest.mark.parametrize(
    ("name", "total", "variant", "tokens"),
    [
        ("paligemma", 2_923_466_480, "paligemma_3b", 256),  # 2.92 B
        ("gemma3", 4_300_079_472, "gemma3_4b", 256),  # 4.30 B
    ],
)
def test_published_sizes_of_paligemma_and_gemma_3(name, total, variant, tokens):
    sizes = llava_sizes.read(PUBLISHED[name])
    assert count(sizes) == total
    model = plain_llava.build(sizes)
    assert model.lm == lm.build(variant)
    assert model.num_image_tokens == tokens


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("llava", {"text_config": {"model_type": "qwen2"}}),
        ("llava", {"text_config": {"rope_scaling": {"type": "yarn", "factor": 4.0}}}),
        ("paligemma", {"text_config": {"model_type": "gemma2"}}),
        ("paligemma", {"text_config": {"use_bidirectional_attention": False}}),
        ("gemma3", {"mm_tokens_per_image": 200}),
        ("instructblip", {"text_config": {"model_type": "t5"}}),
        ("gemma3", {"text_config": {"layer_types": ["full_attention", "sliding_attention"]}}),
    ],
    ids=str,
)
def test_other_relatives_are_refused(name, change):
    config = dict(PUBLISHED[name])
    for key, value in change.items():
        config[key] = {**config[key], **value} if isinstance(value, dict) else value
    with pytest.raises(WeightsError, match=r"known|supported"):
        llava_sizes.read(config)


def test_an_adapter_of_llava_comes_with_its_projector(tmp_path, torch_save):
    rng = np.random.default_rng(0)
    module = "base_model.model.model.layers.{}.self_attn.q_proj.lora_{}.weight"
    arrays = {}
    for layer in range(3):
        arrays[module.format(layer, "A")] = rng.normal(size=(2, 16)).astype(np.float32)
        arrays[module.format(layer, "B")] = rng.normal(size=(16, 2)).astype(np.float32)
    weights.safetensors.numpy.save_file(arrays, tmp_path / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 256, "bias": "none"}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    trained, alpha = lm_adapter.load(tmp_path, LLAVA)
    adapter = trained["lora"]["lm"]["blocks"]["query"]["kernel"]
    assert alpha == 256
    assert (adapter["a"].shape, adapter["b"].shape) == ((3, 16, 2), (3, 2, 16))
    np.testing.assert_array_equal(adapter["b"][1], arrays[module.format(1, "B")].T)
    assert "projector" not in trained
    beside = {}  # what LLaVA's training code writes beside the adapter
    for name, ours in (("0", "first"), ("2", "second")):
        width = 16 if ours == "second" else LLAVA["image"]["width"]
        beside[f"{name}.weight"] = rng.normal(size=(16, width)).astype(np.float32)
        beside[f"{name}.bias"] = rng.normal(size=16).astype(np.float32)
    prefix = "base_model.model.model.mm_projector."
    torch_save({prefix + k: tensor(x) for k, x in beside.items()}, "non_lora_trainables.bin")
    projector = lm_adapter.load(tmp_path, LLAVA)[0]["projector"]
    for name, ours in (("0", "first"), ("2", "second")):
        np.testing.assert_array_equal(projector[ours]["kernel"], beside[f"{name}.weight"].T)
        np.testing.assert_array_equal(projector[ours]["bias"], beside[f"{name}.bias"])
    torch_save({prefix + "0.weight": tensor(beside["0.weight"])}, "non_lora_trainables.bin")
    with pytest.raises(WeightsError, match="not in the file"):
        lm_adapter.load(tmp_path, LLAVA)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": ["llava"]}, "model_type is list; only a text"),
        ({"model_type": "llava", "text_config": "llama"}, "text_config is 'llama'; only a JSON ob"),
        (
            {"model_type": "llava", "text_config": {}, "vision_config": 3},
            "vision_config is 3; only",
        ),
        ({"text_config": {"rope_scaling": [1]}}, "text_config, rope_scaling is list; only a JSON"),
    ],
)
def test_a_part_of_another_kind_is_refused(config, message):
    with pytest.raises(WeightsError, match=message):
        llava_sizes.read(config)


def test_a_listed_type_is_of_no_language_model(tmp_path):
    (tmp_path / "config.json").write_text("[" * 200_000)
    assert not llava_config.is_llava(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": [["llama"]]}')
    assert not llava_config.is_llava(tmp_path)
    assert not text_encoders.is_language_model(tmp_path)

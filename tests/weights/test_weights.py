"""Tables of names: round trips on random arrays, and what does not fit is refused by name."""

import collections
import functools

import jax
import numpy as np
import pytest

from tests.support import archives, small_models
from tests.support.small_models import normal
from vlc_jax import models, weights
from vlc_jax.errors import WeightsError
from vlc_jax.weights import Architecture

SMALL = {"width": 24, "heads": 4, "depth": 2, "mlp_width": 40}
TEXT = {"vocab_size": 30, "context_length": 7, "eos_id": 2}
IMAGE = {**SMALL, "image_size": 12, "patch_size": 4}
OF_PAIRS = {  # no text tower, and a head with an encoder
    "text_tower": False,
    **TEXT,
    "head": {"encoder": {**SMALL, "width": 16, "positions": 9}, "projection": 8},
}
MODELS = small_models.families(SMALL, TEXT, heads=3) | {
    "naflex": {
        "variant": "SigLIP2-B/16-naflex",
        "image": {**IMAGE, "position_grid": 5},
        "text": {**SMALL, **TEXT, "projection": 24},
    },
    "resnet": {
        "variant": "RN50",
        "image": {"width": 4, "stages": (1, 2, 1, 1), "heads": 2, "image_size": 32}
        | {"projection": 8},
        "text": {**SMALL, **TEXT, "projection": 8},
    },
    "dinov2_g": {"variant": "DINOv2-g/14", "image": IMAGE},
    "blip": {
        "name": "blip",
        "variant": "B/16",
        "image": {**IMAGE, "patch_bias": True, "pre_norm": False, "projection": None},
        **OF_PAIRS,
    },
    "xvlm": {
        "name": "xvlm",
        "variant": "Swin-B/32",
        "image": {"width": 4, "stages": (1, 2, 1, 1), "heads": 2, "window": 2, "image_size": 64}
        | {"projection": None},
        **OF_PAIRS,
    },
}
FAMILY = {
    **dict.fromkeys(("openai", "open_clip", "hf_clip"), "clip"),
    **dict.fromkeys(("open_clip_siglip", "hf_siglip", "big_vision", "big_vision_scan"), "siglip"),
    **dict.fromkeys(weights.naflex.FORMATS, "naflex"),
    "openai_resnet": "resnet",
    "open_clip_roberta": "roberta",
    "hf_dinov2": "dinov2",
    "hf_dinov2_swiglu": "dinov2_g",
    "open_clip_eva02": "eva02",
    "open_clip_eva01": "eva01",
    "open_clip_pe": "pe",
    "hf_llm2clip": "llm2clip",
    **dict.fromkeys(("blip", "hf_blip"), "blip"),
    "xvlm": "xvlm",
}
# is_naflex is read for its formats alone
ARCHITECTURE = Architecture({"image": 4, "text": 4}, is_naflex=True)


@functools.cache
def parameters(family):
    """A tree of random numbers, no two alike."""
    params = normal(shapes_of(**MODELS[family]))
    if family in ("blip", "xvlm"):  # transformers has no name for it, and others store exp(-x)
        params["logit_scale"] = np.float32(-np.log(0.07))
    # files of DINOv2 have the image tower alone
    return {"image": params["image"]} if "dinov2" in family else params


def written(tmp_path, arrays):
    path = tmp_path / "weights.npz"
    np.savez(path, **arrays)
    return path


def assert_same(got, expected):
    """The same trees, shapes and numbers; numpy alone would take (1,) for ()."""
    assert jax.tree.map(np.shape, got) == jax.tree.map(np.shape, expected)
    jax.tree.map(np.testing.assert_array_equal, got, expected)


def test_every_format_is_tested():
    # files of FG-CLIP hold more than a model of ours, PE's authors' have no bias, OpenVision's no
    # positions: test_read_only.py
    assert {*FAMILY, "hf_fg_clip", "pe", "openvision"} == set(weights.FORMATS)


@pytest.mark.parametrize("name", FAMILY)
def test_out_and_in_again_is_bit_for_bit_the_same(tmp_path, name):
    params = parameters(FAMILY[name])
    arrays = weights.save(params, name, ARCHITECTURE)
    sizes = [sum(x.size for x in jax.tree.leaves(tree)) for tree in (arrays, params)]
    assert sizes[0] == sizes[1] - (name == "hf_blip")
    back, format_name = weights.load(written(tmp_path, arrays), params, ARCHITECTURE)
    assert format_name == name
    assert_same(back, params)
    again = weights.save(back, name, ARCHITECTURE)
    assert list(again) == list(arrays)
    for key, value in arrays.items():
        np.testing.assert_array_equal(again[key], value)


@pytest.mark.parametrize("name", FAMILY)
def test_the_image_tower_is_read_alone_and_as_strictly(tmp_path, name):
    params = parameters(FAMILY[name])
    arrays = weights.save(params, name, ARCHITECTURE)
    image = {"image": params["image"]}
    back, _ = weights.load(written(tmp_path, arrays), image, ARCHITECTURE)
    assert_same(back, image)
    with pytest.raises(WeightsError, match=r"no parameter of this model: head\.extra"):
        weights.load(written(tmp_path, {**arrays, "head.extra": np.ones(3)}), image, ARCHITECTURE)
    fewer = {key: value for key, value in params["image"].items() if not key.endswith("block_1")}
    with pytest.raises(WeightsError, match="no parameter of this model: "):
        weights.load(written(tmp_path, arrays), {"image": fewer}, ARCHITECTURE)


@pytest.mark.parametrize("name", FAMILY)
def test_what_does_not_fit_is_refused_by_name(tmp_path, name):
    params = parameters(FAMILY[name])
    arrays = weights.save(params, name, ARCHITECTURE)
    key = next(k for k, v in arrays.items() if v.ndim == 2 and "pos" not in k)

    def refused(changed, *words):
        with pytest.raises(WeightsError) as error:
            weights.load(written(tmp_path, changed), params, ARCHITECTURE)
        for word in words:
            assert word in str(error.value)

    refused({**arrays, "head.extra": np.ones(3)}, "head.extra", "no parameter of this model")
    refused({k: v for k, v in arrays.items() if k != key}, key, "not in the file")
    refused({**arrays, key: np.full_like(arrays[key], np.nan)}, "not finite")
    refused({**arrays, key: arrays[key][:-4, :-4]}, "shape")


def test_a_parameter_without_a_name_in_a_format_is_refused(tmp_path):
    params = parameters("siglip")
    with pytest.raises(WeightsError, match="this format has no name for"):
        weights.save({**params, "adapter": {"kernel": np.ones(2)}}, "hf_siglip", ARCHITECTURE)
    arrays = weights.save(params, "hf_siglip", ARCHITECTURE)
    with pytest.raises(WeightsError, match="no name for: adapter"):
        weights.load(written(tmp_path, arrays), {**params, "adapter": np.ones(2)}, ARCHITECTURE)


def test_buffers_that_are_no_weights_are_passed_over(tmp_path):
    params = parameters("clip")
    arrays = weights.save(params, "openai", ARCHITECTURE)
    arrays |= {"attn_mask": np.full((7, 7), -np.inf), "input_resolution": np.asarray(12)}
    back, _ = weights.load(written(tmp_path, arrays), params, ARCHITECTURE)
    assert_same(back, params)


def test_half_precision_comes_back_as_float32(tmp_path):
    params = parameters("clip")
    arrays = weights.save(params, "openai", ARCHITECTURE)
    half = {k: v.astype(np.float16) for k, v in arrays.items()}
    back, _ = weights.load(written(tmp_path, half), params, ARCHITECTURE)
    for x, y in zip(jax.tree.leaves(back), jax.tree.leaves(params), strict=True):
        assert x.dtype == np.float32
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-3)


def test_a_state_dict_of_diva_is_read_but_not_its_trainers(torch_save):
    # BAAI/DIVA's OpenAI-ViT-L-14-336.pth; its code saves the diffusion model, too
    params = parameters("clip")
    arrays = weights.save(params, "openai", ARCHITECTURE)
    tensors = {name: archives.tensor(array) for name, array in arrays.items()}
    path = torch_save(collections.OrderedDict(tensors), "OpenAI-ViT-L-14-336.pth")
    back, name = weights.load(path, params, ARCHITECTURE)
    assert name == "openai"
    assert_same(back, params)
    trained = {f"class_model.model.{key}": value for key, value in tensors.items()}
    trained |= {f"unet.{key}": value for key, value in tensors.items()}
    path = torch_save(trained, "CLIP_after_GenFT.pth")
    with pytest.raises(WeightsError, match=r"no known format.*class_model\.model\."):
        weights.load(path, params, ARCHITECTURE)


BIASED = {**MODELS["clip"], "logit_bias_init": -10.0}


def shapes_of(**options):
    model = models.build(**options)
    return jax.eval_shape(functools.partial(models.init, model), jax.random.key(0))


@pytest.mark.parametrize("name", ["openai", "open_clip", "hf_clip"])
def test_a_bias_that_clips_weights_lack_starts_as_configured(tmp_path, name):
    """As open_clip starts a sigmoid loss from weights without one."""
    params = parameters("clip")
    path = written(tmp_path, weights.save(params, name, ARCHITECTURE))
    with_bias = ARCHITECTURE._replace(logit_bias=-10.0)
    loaded, _ = weights.load(path, shapes_of(**BIASED), with_bias)
    assert loaded.pop("logit_bias") == -10
    assert_same(loaded, params)
    fitted = weights.fitted(params, shapes_of(**BIASED), with_bias)  # of a run
    assert fitted.pop("logit_bias") == -10
    assert_same(fitted, params)


def test_a_bias_that_weights_of_siglip_lack_is_missing(tmp_path):
    arrays = weights.save(parameters("siglip"), "hf_siglip", ARCHITECTURE)
    del arrays["logit_bias"]
    shapes = shapes_of(**MODELS["siglip"])
    with pytest.raises(WeightsError, match="1 not in the file: logit_bias"):
        weights.load(written(tmp_path, arrays), shapes, ARCHITECTURE._replace(logit_bias=-10.0))


def test_a_bias_that_only_weights_have_names_its_field(tmp_path):
    params = normal(shapes_of(**BIASED))
    path = written(tmp_path, weights.save(params, "openai", ARCHITECTURE))
    message = r"have a logit_bias .*: set config\.model\.logit_bias_init"
    for load in (weights.load, lambda _, *args: weights.fitted(params, *args)):
        with pytest.raises(WeightsError, match=message):
            load(path, shapes_of(**MODELS["clip"]), ARCHITECTURE)


@pytest.mark.parametrize(("stored", "is_right"), [(100.0, False), (14.29, False), (4.77, True)])
def test_a_scale_that_is_no_logarithm_is_refused(tmp_path, stored, is_right):
    params = {**parameters("clip"), "logit_scale": np.float32(stored)}
    path = written(tmp_path, weights.save(params, "openai", ARCHITECTURE))
    shapes = shapes_of(**MODELS["clip"])
    for load in (weights.load, lambda _, *args: weights.fitted(params, *args)):
        if is_right:
            load(path, shapes, ARCHITECTURE)
            continue
        with pytest.raises(WeightsError, match=rf"logit_scale is {stored:g}.*is a logarithm"):
            load(path, shapes, ARCHITECTURE)


def test_timms_naflex_is_refused_by_its_name(tmp_path):
    arrays = weights.save(parameters("siglip"), "hf_siglip", ARCHITECTURE)
    path = written(tmp_path, arrays | {"visual.trunk.embeds.proj.weight": np.zeros((24, 48), "f")})
    for read in (weights.read, lambda path: weights.load(path, {}, ARCHITECTURE)):
        with pytest.raises(WeightsError, match="timm's NaFlexVit; SigLIP 2 NaFlex is read from"):
            read(path)


@pytest.mark.parametrize("name", weights.naflex.FORMATS)
def test_naflex_has_own_shapes_and_needs_its_own_tower(tmp_path, name):
    params = parameters("naflex")
    arrays = weights.save(params, name, ARCHITECTURE)
    is_flax = "big_vision" in name
    matrix = arrays[weights.naflex.BIG_VISION if is_flax else weights.naflex.HUGGING_FACE]
    assert matrix.shape == ((4 * 4 * 3, 24) if is_flax else (24, 4 * 4 * 3))
    if is_flax:
        assert arrays["params/img/pos_embedding"].shape == (5, 5, 24)
    path = written(tmp_path, arrays)
    with pytest.raises(WeightsError, match=r"set config\.model\.variant to SigLIP2-B/16"):
        weights.load(path, params, ARCHITECTURE._replace(is_naflex=False))
    assert weights.sizes.read(weights.shapes_of(*weights.read(path, only_shapes=True))).grid == 5


def test_patches_that_are_no_squares_are_refused():
    for name, key in zip(weights.naflex.FORMATS, ("HUGGING_FACE", "BIG_VISION"), strict=False):
        arrays = weights.save(parameters("naflex"), name, ARCHITECTURE)
        arrays[getattr(weights.naflex, key)] = np.zeros((47, 47), "f")
        with pytest.raises(WeightsError, match="47 numbers are no square patch"):
            weights.sizes.read(weights.shapes_of(arrays))
    arrays = weights.save(parameters("naflex"), "big_vision_naflex", ARCHITECTURE)
    arrays["params/img/pos_embedding"] = np.zeros((1, 25, 24), "f")
    with pytest.raises(WeightsError, match=r"shape \(1, 25, 24\): .* are a square grid \(side"):
        weights.sizes.read(weights.shapes_of(arrays))

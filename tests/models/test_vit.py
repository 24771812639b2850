"""The image tower: patches, positions, pooling."""

import functools

import jax
import numpy as np
import pytest

from tests.models.conftest import encode, make
from vlc_jax import errors, models, types
from vlc_jax.models import rope, vit


def test_patches_are_what_a_strided_convolution_sees():
    rng = np.random.default_rng(0)
    image = rng.normal(size=(2, 9, 9, 3)).astype(np.float32)  # one pixel beyond the last patch
    kernel = rng.normal(size=(4, 4, 3, 5)).astype(np.float32)
    convolve = jax.jit(
        lambda image, kernel: jax.lax.conv_general_dilated(
            image, kernel, (4, 4), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
    )
    expected = np.asarray(convolve(image, kernel)).reshape(2, 4, 5)
    patches = np.asarray(jax.jit(vit.patches, static_argnums=1)(image, 4))
    np.testing.assert_allclose(patches @ kernel.reshape(-1, 5), expected, rtol=1e-4, atol=1e-5)


def test_sincos2d_tells_rows_and_columns_apart():
    waves = vit.sincos2d(3, 16).reshape(3, 3, 16)
    np.testing.assert_array_equal(waves[0, :, 8:], waves[0, :1, 8:].repeat(3, 0))
    np.testing.assert_array_equal(waves[:, 0, :8], waves[:1, 0, :8].repeat(3, 0))
    np.testing.assert_allclose(waves[1, 2, 0], np.sin(2.0))  # fastest wave of column 2
    np.testing.assert_allclose(waves[1, 2, 12], np.cos(1.0))  # fastest wave of row 1
    with pytest.raises(ValueError, match="divisible by 4, got 18"):
        vit.sincos2d(3, 18)


def test_mini_starts_from_half_waves():
    model = make("mini")[0]

    def init(key):  # the other parameters are not compiled
        return models.init(model, key)["image"]["position_embedding"]

    positions = np.asarray(jax.jit(init)(jax.random.key(0)))
    np.testing.assert_array_equal(positions[0], 0.0)
    np.testing.assert_allclose(positions[1:], 0.5 * vit.sincos2d(2, 16), rtol=1e-6)


@pytest.mark.parametrize(
    ("family", "image", "count"),
    [
        ("clip", {"pooling": "cls"}, 10),
        ("clip", {"pooling": "mean"}, 9),
        ("clip", {"pooling": "map"}, 9),
        ("clip", {"projection_bias": True, "patch_bias": True, "pre_norm": False}, 10),
        ("siglip", {}, 9),
        ("eva02", {}, 10),
        ("eva02", {"pooling": "mean"}, 9),
        ("mini", {}, 5),
        ("resnet", {}, 4),
        ("swin", {}, 16),
        ("dinov2", {}, 10),  # without its registers
    ],
)
def test_pooled_and_tokens_have_unit_length_and_agree(family, image, count):
    depth = {} if family in ("resnet", "swin") else {"depth": 1}
    model, params, batch = make(family, {**depth, **image})

    def tower(module, pixels):
        requests = map(types.FeatureRequest, ("none", "projected"))
        return [module.image(pixels, request) for request in requests]

    both = jax.jit(functools.partial(model.apply, method=tower))
    short, full = jax.device_get(both({"params": params}, batch["image"]))
    embed = model.image.projection or model.image.width
    assert short.pooled.shape == (4, embed)
    assert short.tokens is None
    assert full.tokens.shape == (4, count, embed)
    np.testing.assert_allclose(np.linalg.norm(short.pooled, axis=-1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(full.tokens, axis=-1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(short.pooled, full.pooled, atol=1e-5)
    if getattr(model.image, "pooling", "") == "cls":
        np.testing.assert_allclose(full.pooled, full.tokens[:, 0], atol=1e-6)


def test_a_model_without_texts_refuses_them():
    model, params, batch = make("dinov2")
    assert set(params) == {"image", "logit_scale"}
    with pytest.raises(errors.UsageError, match="no texts"):
        model.apply({"params": params}, batch["text"], method="encode_text")
    with_vectors = models.build("clip", "DINOv2-B/14", vector_width=6, text={"projection": 768})
    assert with_vectors.text.embed == with_vectors.image.embed == 768


def test_options_add_exactly_their_parameters():
    def parameters(family, **image):
        model, _, batch = make(family, {"depth": 1, **image})
        pixels = batch["image"]
        return jax.eval_shape(model.image.init, jax.random.key(0), pixels)["params"]

    plain, bias = parameters("clip"), parameters("clip", projection_bias=True, patch_bias=True)
    assert "bias" not in plain["patch_embedding"]
    assert "bias" not in plain["projection"]
    assert bias["patch_embedding"]["bias"].shape == (16,)
    assert bias["projection"]["bias"].shape == (8,)
    mean = parameters("clip", pooling="mean", pre_norm=False)
    assert {"class_embedding", "pre_norm"} & set(mean) == set()
    assert "projection" not in parameters("siglip")
    assert set(parameters("siglip")["pooling"]) == {"probe", "attention", "norm", "mlp"}


def test_mean_pooling_without_positions_sees_no_place():
    model, params, batch = make("clip", {"pooling": "mean"})
    params = {"image": {**params["image"], "position_embedding": np.zeros((9, 16), np.float32)}}
    moved = np.roll(batch["image"], (4, 8), axis=(1, 2))  # whole patches
    expected = encode(model, params, "image", batch["image"]).pooled
    np.testing.assert_allclose(encode(model, params, "image", moved).pooled, expected, atol=1e-5)
    model, _, _ = make("clip", {"pooling": "mean", "rope": "qk_2d"})  # has no parameters
    before, after = (
        np.asarray(encode(model, params, "image", x).pooled) for x in (batch["image"], moved)
    )
    assert np.abs(before - after).max() > 1e-3


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("clip", {"rope": "qk_1d"}),
        ("clip", {"rope": "qk_1d", "rope_layout": "halves"}),
        ("clip", {"rope": "qk_1d", "rope_base": 10.0}),
        ("clip", {"rope": "qk_2d", "rope_layout": "halves"}),
        ("clip", {"rope": "qk_2d", "rope_base": 10.0}),
    ],
    ids=str,
)
def test_every_rotary_option_reaches_queries_and_keys(family, options):
    model, params, batch = make(family, options)
    turned = []

    def rotate(x, rotation):
        turned.append((x.shape, rotation.layout))
        return x

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rope, "rotate", rotate)
        jax.eval_shape(functools.partial(model.apply, method="encode_image"), {"params": params},
                       batch["image"])  # fmt: skip
    # queries and keys of two blocks; of the last one's queries only the class token's
    layout = options.get("rope_layout", "interleaved")
    shapes = [(4, 10, 2, 8)] * 2 + [(4, 1, 2, 8), (4, 10, 2, 8)]
    assert turned == [(shape, layout) for shape in shapes]
    rotation = model.image._rotation(num_prefix_tokens=1)
    base = options.get("rope_base", 10_000.0)
    if options["rope"] == "qk_1d":  # head width 8: 4 pairs
        angles = np.arange(9)[:, None] * base ** -np.array([0, 1 / 4, 2 / 4, 3 / 4])
    else:
        both = np.stack(np.divmod(np.arange(9), 3), axis=-1)
        angles = np.concatenate([both[:, :1] * [1, base**-0.5], both[:, 1:] * [1, base**-0.5]], 1)
    np.testing.assert_allclose(np.asarray(rotation.cos)[0, 0], 1.0)  # the class token
    np.testing.assert_allclose(np.asarray(rotation.sin)[0, 1:], np.sin(angles), atol=1e-6)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ({"rope": "qk_1d", "width": 14}, "qk_1d needs a head width divisible by 2"),
        ({"rope": "qk_2d", "width": 12}, "qk_2d needs a head width divisible by 4"),
        ({"rope": "qk_1d", "rope_span": 3}, "rope_span=3 is an option of rope qk_2d"),
        ({"rope": "qk_1d", "rope_layout": "split"}, "known: .*interleaved"),
    ],
    ids=str,
)
def test_rotary_options_that_do_not_fit_are_refused(image, message):
    with pytest.raises(errors.UsageError, match=message):
        make("clip", image)


def test_attention_pooling_of_a_token_is_that_of_it_alone():
    model, params, batch = make("siglip", {"image_size": 4})  # one patch
    alone = jax.device_get(encode(model, params, "image", batch["image"], tokens="projected"))
    np.testing.assert_allclose(alone.tokens[:, 0], alone.pooled, atol=1e-6)

    model, params, batch = make("siglip")  # the formula: attention is the value of the token
    normed = np.asarray(encode(model, params, "image", batch["image"], tokens="normed").tokens)
    found = np.asarray(encode(model, params, "image", batch["image"], tokens="projected").tokens)
    pooling = jax.tree.map(np.asarray, params["image"]["pooling"])
    attention, mlp = pooling["attention"], pooling["mlp"]
    width = model.image.width
    value = normed @ attention["key_value"]["kernel"][:, width:]
    value += attention["key_value"]["bias"][width:]
    value = value @ attention["out"]["kernel"] + attention["out"]["bias"]
    centred = value - value.mean(-1, keepdims=True)
    inner = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + model.image.epsilon)
    inner = inner * pooling["norm"]["scale"] + pooling["norm"]["bias"]
    inner = np.asarray(jax.jit(jax.nn.gelu)(inner @ mlp["up"]["kernel"] + mlp["up"]["bias"]))
    expected = value + inner @ mlp["down"]["kernel"] + mlp["down"]["bias"]
    expected /= np.linalg.norm(expected, axis=-1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.abs(found - normed / np.linalg.norm(normed, axis=-1, keepdims=True)).max() > 0.1


def test_the_class_token_sees_every_patch():
    model, params, batch = make("clip")

    def pooled(image):
        features = model.apply({"params": params}, image, method="encode_image")
        return features.pooled[:, 0].sum()

    gradient = jax.jit(jax.grad(pooled))(batch["image"])
    assert np.all(np.abs(gradient) > 0)


def test_tokens_are_the_class_token_and_patches_by_row():
    model, params, batch = make("clip")

    def silence(path, x):  # blocks that write nothing: every token sees only itself
        return np.zeros_like(x) if {"out", "down"} & {key.key for key in path} else x

    params = jax.tree.map_with_path(silence, params)
    other = np.array(batch["image"])
    other[:, 4:8, 8:] += 1  # second row of patches, third column
    before, after = (
        np.asarray(encode(model, params, "image", image, tokens="projected").tokens)
        for image in (batch["image"], other)
    )
    is_changed = np.abs(before - after).max(axis=(0, 2)) > 1e-4
    np.testing.assert_array_equal(np.flatnonzero(is_changed), [1 + 5])


@pytest.mark.parametrize(("family", "side"), [("clip", 12), ("resnet", 64)])
def test_another_image_size_is_refused(family, side):
    model, params, _ = make(family)
    with pytest.raises(errors.UsageError, match=rf"\({side}, {side}, 3\), got \(96, 96, 3\)"):
        encode(model, params, "image", np.zeros((1, 96, 96, 3), np.float32))


def test_tokens_of_every_stage_are_those_that_pooling_reads():
    model, params, batch = make("clip", {"pooling": "mean"})
    raw, normed, projected = (
        np.asarray(encode(model, params, "image", batch["image"], tokens=tokens).tokens)
        for tokens in ("raw", "normed", "projected")
    )
    centred = raw - raw.mean(-1, keepdims=True)
    norm = jax.tree.map(np.asarray, params["image"]["norm"])
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + model.image.epsilon)
    expected = expected * norm["scale"] + norm["bias"]
    np.testing.assert_allclose(normed, expected, atol=1e-5)
    kernel = np.asarray(params["image"]["projection"]["kernel"])
    expected = normed @ kernel
    expected /= np.linalg.norm(expected, axis=-1, keepdims=True)
    np.testing.assert_allclose(projected, expected, atol=1e-5)


def test_features_that_are_not_scaled_are_the_projections():
    model, params, batch = make("clip")

    def image(module, pixels, is_unit):
        return module.image(pixels, types.FeatureRequest("projected", is_unit))

    def apply(is_unit):
        run = jax.jit(lambda p, x: model.apply({"params": p}, x, is_unit, method=image))
        return jax.device_get(run(params, batch["image"]))

    unit, whole = apply(True), apply(False)
    for short, full in ((unit.pooled, whole.pooled), (unit.tokens, whole.tokens)):
        lengths = np.linalg.norm(full, axis=-1, keepdims=True)
        assert np.abs(lengths - 1).max() > 0.01
        np.testing.assert_allclose(short, full / lengths, atol=1e-6)

"""Flamingo: resampler, cross attention in the decoder, and the captioner over them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding

from tests.support import plain_llava, small_models
from tests.support.compilations import apply
from tests.support.flamingo_folder import small  # noqa: F401 -- a fixture
from vlc_jax import errors, models, types
from vlc_jax.devices import sharding
from vlc_jax.models import continuation, flamingo, llava, lm
from vlc_jax.train import flops

IMAGES, PATCHES, FEATURES, VOCAB, LENGTH, IMAGE = 3, 4, 6, 11, 5, 10
DECODER = {
    "width": 12,
    "depth": 4,
    "heads": 3,
    "mlp_width": 24,
    "scaling": None,
    "activation": "gelu",
    "is_tied": True,
    "is_centred": True,
    "is_gated": False,
    "alibi": 8.0,
    "cross_every": 2,
    "cross_width": FEATURES,
}


def make(**fields):
    return models.HEADS["captioner"](
        vocab_size=VOCAB,
        patches=1 + PATCHES,
        has_class_token=True,
        projection="resampler",
        chunk=2,
        **{"prefix": (7, IMAGE), "decoder": DECODER, **fields},
    )


def score(module, image, text):
    return module.score(module.image(image), module.text(text))


@functools.cache
def given():
    """The head, its parameters, images and texts."""
    head, rng = make(), np.random.default_rng(0)
    tokens = rng.normal(size=(IMAGES, 1 + PATCHES, FEATURES)).astype(np.float32)
    image = types.ImageFeatures(np.zeros((IMAGES, 1), np.float32), tokens)
    ids = rng.integers(0, VOCAB - 1, (4, LENGTH), np.int32)
    mask = np.arange(LENGTH)[None] <= np.array([2, 4, 3, 0])[:, None]
    text = types.TextFeatures(np.zeros((4, 1), np.float32), mask=mask, ids=ids)
    init = functools.partial(head.init, method=score)
    variables = small_models.drawn(init, image, text, scale=0.4, seed=1)
    return head, jax.device_put(variables), image, text


def test_score_is_that_of_a_text_alone_behind_its_image():
    head, variables, image, text = given()

    @jax.jit
    def plain(length, patches, ids):
        """One text as one row: no cache, no mask of padding, which no token before it sees, no
        other text."""

        def run(module):
            read = jnp.concatenate([jnp.array(head.prefix), ids])[None]
            seen = jnp.cumsum(read == IMAGE, axis=1)
            media = flamingo.Media(module.projector(patches[None, 1:])[:, None], seen)
            hidden, _ = module.lm(module.lm.embed(read), seen >= 0, media=media)
            found = jax.nn.log_softmax(module.lm.logits(hidden)[0, len(head.prefix) - 1 : -1])
            place = jnp.arange(LENGTH)
            return found[place, ids].mean(where=place < length)

        return head.apply(variables, method=run)

    ends = text.mask.sum(axis=1)
    expected = [[plain(n, x, t) for t, n in zip(text.ids, ends, strict=True)] for x in image.tokens]
    found = np.asarray(apply(head, variables, image, text, method=score))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.ptp(found, axis=0).min() > 1e-3  # of every text between images


def test_a_prompt_without_its_image_depends_on_no_image():
    head, variables, image, text = given()
    ids, has = jax.device_put((text.ids[:IMAGES], np.array([False, True, True])))

    @jax.jit
    def run(variables, tokens):
        def of(module):
            asked = module.image(image._replace(tokens=tokens, has_image=has))
            found = []
            for has_image in (True, False):
                prompt = module.prompt(asked, ids, jnp.ones(ids.shape, bool), has_image=has_image)
                params = module.decoder_and_params()[1]
                found.append(continuation.prefill(head.language_model, params, prompt, 1)[0])
            return found

        return head.apply(variables, method=of)

    with_image, without = run(variables, image.tokens)
    others = run(variables, image.tokens[::-1])
    np.testing.assert_array_equal(without, others[1])
    np.testing.assert_array_equal(with_image[0], others[0][0])  # a row without an image
    assert np.abs(with_image - others[0])[2].max() > 1e-2
    assert np.abs(with_image - without)[1:].max() > 1e-2


def test_closed_gates_leave_the_decoder_as_it_is():
    _, variables, _, text = given()
    params = dict(variables["params"]["lm"])
    cross = {**params.pop("cross")}
    for name in ("attention_gate", "mlp_gate"):
        cross[name] = np.zeros(cross[name].shape, "f4")
    media = np.ones((4, 1, 64, FEATURES), np.float32), np.ones((4, LENGTH), np.int32)
    media = flamingo.Media(*media)
    plain = lm.from_sizes({**DECODER, "cross_every": None}, vocab=VOCAB)
    valid = np.ones((4, LENGTH), bool)
    embeds = np.asarray(params["token_embedding"]["embedding"])[text.ids]
    opened = lm.from_sizes(DECODER, vocab=VOCAB)
    run = jax.jit(functools.partial(opened.apply, {"params": {**params, "cross": cross}}))
    found = run(embeds, valid, media=media)[0]
    expected = apply(plain, {"params": params}, embeds, valid)[0]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_products_of_cross_attention_count_in_its_layers_only():
    def count(every):
        decoder = lm.from_sizes({**DECODER, "cross_every": every}, vocab=VOCAB)
        shapes = jax.eval_shape(functools.partial(lm.init, decoder), jax.random.key(0))
        media = flamingo.Media(jnp.ones((1, 1, 64, FEATURES)), jnp.ones((1, 3), jnp.int32))
        run = functools.partial(decoder.apply, media=media)
        trace = jax.make_jaxpr(run)(
            {"params": shapes}, jnp.ones((1, 3, 12)), jnp.ones((1, 3), bool)
        )
        return flops.count(trace).model

    one, two, four = map(count, (1, 2, 4))
    assert one - two == 2 * (two - four) > 0


@pytest.mark.devices
def test_a_mesh_of_explicit_axes_gives_the_scores_of_one_device():
    head, variables, image, text = given()
    rows = jax.tree.map(lambda x: np.concatenate([x, x[:1]]), image)
    placed = tuple(jax.device_put((rows, text)))
    expected = np.asarray(apply(head, variables, image, text, method=score))
    axes = (AxisType.Explicit,) * 2
    mesh = jax.make_mesh((2, 2), types.BATCH_AXES, axis_types=axes, devices=jax.devices()[:4])
    run = jax.jit(functools.partial(head.apply, method=score))
    with jax.set_mesh(mesh):
        placed = jax.device_put(placed, NamedSharding(mesh, jax.P(types.BATCH_AXES)))
        found = run(jax.device_put(variables, NamedSharding(mesh, jax.P())), *placed)
    np.testing.assert_allclose(np.asarray(found)[:IMAGES], expected, atol=1e-5)


@pytest.mark.devices
def test_cross_attention_is_split_as_the_blocks_are():
    mesh = sharding.make_mesh(data=1, fsdp=4, tensor=2)
    decoder = lm.build("mpt_7b", cross_every=4, cross_width=1024)
    shapes = {"lm": jax.eval_shape(functools.partial(lm.init, decoder), jax.random.key(0))}
    where = sharding.state_shardings(mesh, shapes)
    split = jax.tree.map(lambda x, s: s.shard_shape(x.shape), shapes, where)["lm"]["cross"]
    assert split["query"]["kernel"] == (8, 4096 // 4, 512 // 2)
    assert split["key"]["kernel"] == (8, 1024 // 4, 512 // 2)
    assert split["down"]["kernel"] == (8, 16_384 // 2, 4096 // 4)


def test_published_sizes():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flamingo, "DEPTH", 6)
        resampler = llava.Projector(0, kind="resampler")
        shapes = jax.eval_shape(resampler.init, jax.random.key(0), jnp.zeros((1, 256, 1024)))
    decoder = lm.build("mpt_7b", cross_every=4, cross_width=1024)
    language = jax.eval_shape(functools.partial(lm.init, decoder), jax.random.key(0))
    tower = plain_llava.image_tower(1, -1, width=1024, heads=16, patch_size=14, image_size=224)
    image = jax.eval_shape(tower.init, jax.random.key(0), jnp.zeros((1, 224, 224, 3)))
    count = lambda tree: sum(x.size for x in jax.tree.leaves(tree))  # noqa: E731
    cross = 2 * 4096 * 512 + 2 * 1024 * 512 + 8 * 4096**2 + 4 * 4096 + 2
    assert count(language["cross"]) == 8 * cross == 1_115_815_952
    assert count(language) == 6_649_286_656 + 8 * cross
    assert count(shapes) == 63_019_008
    blocks = 23 * count(image["params"]["block_0"])
    assert count(image) + blocks == 303_179_776  # CLIP's tower without the projection


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prefix": ()}, r"ends with the token <image> .* got prefix=\(\)"),
        ({"positions": True}, "images have no positions"),
        ({"decoder": {**DECODER, "cross_every": None}}, "got cross_every=None and projection='res"),
        ({"projection": "mlp"}, "got cross_every=2 and projection='mlp'"),
    ],
)
def test_parts_that_do_not_fit_are_refused(fields, message):
    _, _, image, text = given()
    head = make().clone(**fields)
    with pytest.raises(errors.UsageError, match=message):
        jax.eval_shape(functools.partial(head.init, method=score), jax.random.key(0), image, text)


def test_an_embedder_has_no_place_for_an_image_in_the_text():
    fields = {"vocab_size": 9, "patches": 4, "has_class_token": False, "projection": "resampler"}
    head = models.HEADS["vlm2vec"](**fields)
    _, _, image, _ = given()
    with pytest.raises(errors.UsageError, match="vlm2vec reads the tokens of an image"):
        jax.eval_shape(functools.partial(head.init, method="image"), jax.random.key(0), image)

"""The captioner against its formula: one text at a time, no cache, no padding."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support import small_models
from tests.support.compilations import apply
from tests.support.marks import slow_but
from vlc_jax import errors, losses, models, types
from vlc_jax.models import llava

IMAGES, PATCHES, EMBED, VOCAB, LENGTH = 3, 4, 6, 11, 5
ENDS = (2, 4, 3, 0)  # last token of each text


def make(select="patch", marks=None, **options):
    head = models.HEADS["captioner"](
        vocab_size=VOCAB,
        patches=1 + PATCHES,
        has_class_token=True,
        width=8,
        depth=2,
        attention_heads=2,
        select=select,
        chunk=2,
        **options,
    )
    image, text = given(select, marks)
    return head, variables_of(head.clone(scores="all"), select), image, text


def both(module, image, text):
    return module.score(module.image(image), module.text(text))


@functools.partial(jax.jit, static_argnums=0)
def scores(head, variables, image, text):
    return head.apply(variables, image, text, method=both)


@functools.cache
def variables_of(head, select):
    init = functools.partial(head.init, method=both)
    return jax.device_put(small_models.drawn(init, *given(select), scale=0.4, seed=1))


def given(select, marks=None):
    """Features of images and texts."""
    rng = np.random.default_rng(0)
    pooled = rng.normal(size=(IMAGES, EMBED)).astype(np.float32)
    tokens = rng.normal(size=(IMAGES, 1 + PATCHES, EMBED)).astype(np.float32)
    ids = rng.integers(0, VOCAB, (len(ENDS), LENGTH), np.int32)
    mask = np.arange(LENGTH)[None] <= np.array(ENDS)[:, None]
    image = types.ImageFeatures(pooled, tokens if select != "pooled" else None)
    nothing = np.zeros((len(ENDS), EMBED), np.float32)
    return image, types.TextFeatures(nothing, mask=mask, ids=ids, marks=marks)


ROWS, SLOTS = 12, 16  # pairs and slots of the largest case below


@functools.partial(jax.jit, static_argnums=0)
def next_tokens(decoder, params, embeds, prefix):
    """Log probabilities of what follows each slot, for a program that all tests share."""

    def run(module):
        return module.logits(module(embeds, jnp.ones(prefix.shape, bool), prefix=prefix)[0])

    return jax.nn.log_softmax(decoder.apply({"params": params}, method=run))


def one_by_one(head, variables, before, ids, prefix=0, start=0):
    """Log probabilities of the tokens of texts behind `before`, (images, slots, width): a text has
    a row of its own, no cache and no mask. Padding behind it is seen by none of its tokens.

    prefix: number of slots of a text that see one another, from the slot `start` on.
    """
    params = variables["params"]["lm"]
    texts = np.asarray(params["token_embedding"]["embedding"])[ids]
    images, texts_, (slots, width) = len(before), len(ids), np.shape(before)[1:]
    rows = np.zeros((ROWS, SLOTS, width), np.float32)  # of one shape, which compiles once
    pairs = rows[: images * texts_].reshape(images, texts_, SLOTS, width)
    pairs[:, :, :slots] = np.asarray(before)[:, None]
    pairs[:, :, slots : slots + ids.shape[1]] = texts
    slot, end = np.arange(SLOTS), np.broadcast_to(prefix, (texts_,))[:, None]
    mask = np.zeros((ROWS, SLOTS), bool)
    mask[: images * texts_] = np.tile((slot >= start) & (slot < end), (images, 1))
    found = np.asarray(next_tokens(head.language_model, params, rows, mask))
    found = found[: images * texts_].reshape(images, texts_, SLOTS, -1)
    place = slots - 1 + np.arange(ids.shape[1])
    return found[:, np.arange(texts_)[:, None], place, ids]  # images texts length


def image_tokens(head, variables, image):
    return np.asarray(apply(head, variables, image, method="image").tokens)


@pytest.mark.parametrize("select", slow_but(("patch",), ("patch", "cls", "pooled")))
def test_score_is_the_mean_log_probability_of_the_text(select):
    head, variables, image, text = make(select)

    values = one_by_one(head, variables, image_tokens(head, variables, image), text.ids)
    expected = values.mean(axis=2, where=text.mask)
    assert np.ptp(expected) > 0.1
    found = np.asarray(scores(head, variables, image, text))
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("select", ["patch", "cls_patch", "pooled"])
def test_every_image_token_has_a_position_of_its_own(select):
    head, variables, image, _ = make(select, positions=True)
    params = dict(variables["params"])
    position = params.pop("position")
    found = apply(head, variables, image, method="image").tokens
    plain = head.clone(positions=False)
    tokens = apply(plain, {"params": params}, image, method="image").tokens
    np.testing.assert_allclose(found, np.add(tokens, position), rtol=1e-6)


def test_a_text_alone_is_scored_whatever_the_image():
    place, ends = np.arange(LENGTH)[None], np.array(ENDS)[:, None]
    marks = (place <= ends).astype(np.int8)  # the first token, too, which nothing predicts
    head, variables, image, text = make(marks=marks, scores="answer", prefix=(5, 2))
    text = jax.tree.map(lambda x: x[:IMAGES], text)
    has_image = np.array([False, True, False])

    def own(module, image, text):
        return module.score_options(module.image(image), module.text(text))

    def log_probs(module, ids):
        """From the second token on, of the text alone; none sees the padding behind it."""
        logits = module.lm.text_logits(ids[None], jnp.ones((1, len(ids)), bool))[0]
        return jax.nn.log_softmax(logits)[jnp.arange(len(ids) - 1), ids[1:]]

    @jax.jit
    def run(tokens, has_image):
        features = image._replace(tokens=tokens, has_image=has_image)
        return head.apply(variables, features, jax.tree.map(jnp.asarray, text), method=own)[:, 0]

    found = np.asarray(run(image.tokens, has_image))
    alone = jax.jit(functools.partial(head.apply, variables, method=log_probs))
    for row in (0, 2):
        expected = np.asarray(alone(text.ids[row]))[: ENDS[row]].mean()
        np.testing.assert_allclose(found[row], expected, atol=1e-5)
    whole = np.asarray(run(image.tokens, None))
    np.testing.assert_allclose(found[1], whole[1], atol=1e-6)
    assert np.abs(found[::2] - whole[::2]).min() > 1e-3
    gradient = jax.jit(jax.grad(lambda tokens: run(tokens, has_image).sum()))(image.tokens)
    assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(np.abs(gradient).max(axis=(1, 2)) > 0, has_image)


def test_a_question_is_read_behind_its_image_and_not_scored():
    head, variables, image, text = make()
    question = np.array([[4, 7, types.NOT_ASKED], [9, types.NOT_ASKED, types.NOT_ASKED], [1, 2, 3]])
    asked = image._replace(question=question)
    expected = np.zeros((IMAGES, len(ENDS)))
    tokens = image_tokens(head, variables, image)
    for i, row in enumerate(question):
        asked_tokens = row[row != types.NOT_ASKED]
        read = np.stack([np.concatenate([asked_tokens, ids]) for ids in text.ids])
        values = one_by_one(head, variables, tokens[i : i + 1], read)[0, :, len(asked_tokens) :]
        expected[i] = values.mean(axis=1, where=text.mask)
    found = np.asarray(scores(head, variables, asked, text))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.abs(found - scores(head, variables, image, text)).max() > 0.1


def test_without_the_image_its_tokens_alone_are_left_out():
    head, variables, image, _ = make(prefix=(5,))
    question = np.array([[4, 7, types.NOT_ASKED], [9, types.NOT_ASKED, types.NOT_ASKED], [1, 2, 3]])
    ids, valid = np.array([[3, 4]] * IMAGES), np.array([[True, True], [True, False], [True] * 2])

    def prompts(module, image, ids, valid):
        return [module.prompt(module.image(image), ids, valid, has_image=x) for x in (True, False)]

    asked = image._replace(question=question)
    seen, unseen = apply(head, variables, asked, ids, valid, method=prompts)
    is_asked = question != types.NOT_ASKED
    start, patches = np.ones((IMAGES, 1), bool), np.ones((IMAGES, PATCHES), bool)
    for prompt, own in ((seen, patches), (unseen, ~patches)):
        expected = np.concatenate([start, own, is_asked, valid], axis=1)
        np.testing.assert_array_equal(prompt.valid, expected)


def test_own_texts_have_the_score_of_all_pairs():
    head, variables, image, text = make()
    every = np.asarray(scores(head, variables, image, text))
    own = np.array([[0, 1], [2, 3], [3, 0]])

    def options(module, image, text):
        return module.score_options(module.image(image), text)

    for count in (2, 1):  # with the cache of the image, and in one pass
        chosen = own[:, :count].ravel()
        part = jax.tree.map(lambda x, chosen=chosen: x[chosen], text)
        found = np.asarray(apply(head, variables, image, part, method=options))
        np.testing.assert_allclose(
            found, np.take_along_axis(every, own[:, :count], axis=1), atol=1e-5
        )


MARKS = np.array([[0, 1, 1, 0, 0], [0, 0, 0, 1, 1], [1, 1, 0, 1, 0], [0, 0, 0, 0, 0]], np.int8)


def test_only_answers_are_scored_behind_prefix_and_image():
    head, variables, image, text = make(marks=MARKS, scores="answer", prefix=(7, 3))
    without = head.clone(prefix=())

    table = np.asarray(variables["params"]["lm"]["token_embedding"]["embedding"])
    tokens = image_tokens(without, variables, image)
    start = np.broadcast_to(table[[7, 3]], (IMAGES, 2, tokens.shape[2]))
    before = np.concatenate([start, tokens], axis=1)
    values = one_by_one(without, variables, before, text.ids)[:, :3]
    expected = np.zeros((IMAGES, len(MARKS)))  # 0 where no token counts
    # also behind the first end of an answer
    expected[:, :3] = values.mean(axis=2, where=MARKS[:3] > 0)
    found = np.asarray(scores(head, variables, image, text))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    changed = np.asarray(scores(without, variables, image, text))
    assert np.abs(changed - found)[:, :3].max() > 1e-3


@pytest.mark.parametrize(
    ("bidirectional", "options"),
    [
        ("image", {"projection": "pooled", "side": 2}),
        pytest.param("prompt", {"projection": "linear"}, marks=pytest.mark.slow),
    ],
)
def test_an_image_or_a_prompt_is_seen_in_both_directions(bidirectional, options):
    head, variables, image, text = make(
        marks=MARKS, scores="answer", prefix=(7, 3), bidirectional=bidirectional, **options
    )
    slots = 2 + PATCHES
    questions = np.array([1, 3, 0])  # tokens before the answers of MARKS
    tokens, of_image = image_tokens(head, variables, image), bidirectional == "image"
    values = one_by_one(
        *(head, variables, tokens, text.ids[:3]),
        prefix=slots if of_image else slots + questions,
        start=2 if of_image else 0,
    )
    expected = np.zeros((IMAGES, len(MARKS)))
    expected[:, :3] = values.mean(axis=2, where=MARKS[:3] > 0)
    found = np.asarray(scores(head, variables, image, text))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    causal = np.asarray(scores(head.clone(bidirectional="none"), variables, image, text))
    assert np.abs(causal - found)[:, :2].max() > 1e-3

    def prompt(module, image, ids):
        return module.prompt(module.image(image), ids, jnp.ones(ids.shape, bool)).prefix

    prefix = np.asarray(apply(head, variables, image, text.ids[:IMAGES, :2], method=prompt))
    is_image = np.arange(slots + 2) >= 2
    is_image[slots:] = False
    assert (prefix == (is_image[None] if bidirectional == "image" else True)).all()


def test_tokens_that_an_image_does_not_have_are_refused():
    with pytest.raises(errors.UsageError, match="4 patches cannot be pooled to 3 x 3"):
        make(projection="pooled", side=3)
    with pytest.raises(errors.UsageError, match="needs a class token"):
        llava.selected(jnp.zeros((1, PATCHES, EMBED)), "cls", False)


def test_answers_without_marks_are_refused():
    head, variables, image, text = make()
    with pytest.raises(errors.UsageError, match="the texts have no marks"):
        scores(head.clone(scores="answer"), variables, image, text)


@pytest.mark.parametrize("reduction", [None, "token", "square", "sample"])
def test_the_captioning_loss_weighs_texts_by_its_reduction(reduction):
    options = {"reduction": reduction} if reduction else {}  # by default all tokens alike
    scores, lengths = np.array([-1.0, -2.0, -4.0, -9.0]), np.array([2, 6, 0, 4])
    mask = np.array([True, True, True, False])  # the third text has no token that counts

    def loss(scores, lengths, mask):
        return losses.LOSSES["caption"].dense(scores, lengths, mask, **options)[:3].mean()

    value, found = jax.jit(jax.value_and_grad(loss))(scores, lengths, mask)

    # cross-entropy of each token, 1 in the first text and 2 in the second, with its own weight
    weights = {"square": (2**-0.5, 6**-0.5), "sample": (1 / 2, 1 / 6)}.get(reduction, (1, 1))
    tokens = np.repeat([1.0, 2.0], [2, 6])
    weights = np.repeat(weights, [2, 6])
    assert float(value) == pytest.approx(np.average(tokens, weights=weights))
    gradient = [-weights[0] * 2 / weights.sum(), -weights[-1] * 6 / weights.sum(), 0, 0]
    np.testing.assert_allclose(found, gradient, rtol=1e-6)


def test_an_unknown_reduction_is_refused():
    with pytest.raises(errors.UsageError, match="unknown reduction of the loss caption 'sampel'"):
        losses.check({"caption": {"weight": 1.0, "reduction": "sampel"}})


@pytest.mark.slow
def test_a_decoder_held_in_half_scores_as_one_in_float32():
    head, variables, image, text = make(dtype=jnp.bfloat16)
    held = head.clone(param_dtype="compute")
    init = functools.partial(held.init, method=both)
    shapes = jax.eval_shape(init, jax.random.key(0), image, text)
    kinds = jax.tree.map(lambda leaf: leaf.dtype.name, shapes["params"])
    assert set(jax.tree.leaves(kinds["lm"])) == {"bfloat16"}
    assert set(jax.tree.leaves(kinds["projector"])) == {"float32"}
    half = jax.tree.map(lambda x, leaf: np.asarray(x).astype(leaf.dtype), variables, shapes)
    half, image, text = jax.device_put((half, image, text))
    expected = scores(head, variables, image, text)
    np.testing.assert_array_equal(scores(held, half, image, text), expected)

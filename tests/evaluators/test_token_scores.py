"""Choices by tokens: which of them says what is planted in which token of hand-made features."""

import math

import numpy as np
import pytest

from vlc_jax import errors
from vlc_jax.evaluators import Scorer, choice, token_scores
from vlc_jax.input_pipeline.benchmarks import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.types import ImageFeatures, TextFeatures

AXES = np.eye(8, dtype=np.float32)
WHAT, OTHER, NOISE, START = AXES[:4]
PATCHES, LENGTH = 5, 9


def texts_of(captions, told_at, is_pooled):
    """Captions of words, a start and an end; a right one has WHAT in the token that is `told_at`
    places before its end, others have OTHER there. Padding is garbage."""
    rng = np.random.default_rng(0)
    tokens = rng.normal(size=(len(captions), LENGTH, 8)).astype(np.float32)
    mask = np.zeros((len(captions), LENGTH), bool)
    pooled = np.tile(NOISE, (len(captions), 1))
    for n, caption in enumerate(captions):
        end = len(caption.split()) + 1
        said = WHAT if "right" in caption else OTHER
        mask[n, : end + 1] = True
        tokens[n, : end + 1] = NOISE
        tokens[n, 0] = START
        if told_at is not None:
            tokens[n, end - told_at] = said
        if is_pooled:
            pooled[n] = said
    return TextFeatures(pooled, tokens, mask)


def scorer_of(told_at=None, is_pooled=False, patch=None, is_pooled_image=False):
    """A model whose images have WHAT in one patch, in their pooled vector, or nowhere."""

    def image_tokens(images):
        tokens = np.tile(NOISE, (len(images), PATCHES, 1))
        if patch is not None:
            tokens[:, patch] = WHAT
        pooled = np.tile(WHAT if is_pooled_image else START, (len(images), 1))
        return ImageFeatures(pooled, tokens)

    def text_tokens(captions):
        return texts_of(captions, told_at, is_pooled)

    def score_options(image, text):
        return np.ones((len(image.pooled), len(text.pooled) // len(image.pooled)))

    return Scorer(image_tokens, text_tokens, None, score_options, image_tokens, text_tokens)


def benchmark(count=6, words="a b c"):
    cases = [
        Case(f"{n}", (b"%d" % n,), (f"{words} right {n}", f"{words} wrong {n}"))
        for n in range(count)
    ]
    return Benchmark("b", cases, "1")


def accuracies(scorer, cases=None, **options):
    found = choice.evaluate(cases or benchmark(), scorer, tokens=True, **options).metrics
    names = {name.removesuffix("_accuracy"): e for name, e in found.items() if name != "accuracy"}
    return {name: e for name, e in names.items() if "/" not in name}


@pytest.mark.parametrize(
    ("planted", "right"),
    [
        ({"is_pooled": True, "is_pooled_image": True}, {"pooled"}),
        ({"told_at": 2, "is_pooled_image": True}, {"text_before_end_2", "text_mean"}),
        ({"told_at": 4, "is_pooled_image": True}, {"text_before_end_4", "text_mean"}),
        ({"patch": 3, "is_pooled": True}, {"image_mean", "image_best"}),
        ({"patch": 0, "told_at": 3}, {"map"}),
        ({}, set()),
    ],
)
def test_what_a_token_knows_is_found_where_it_is_read_and_nowhere_else(planted, right):
    found = accuracies(scorer_of(**planted))
    of_one_patch = found.pop("image_each").value
    assert {name: e.value for name, e in found.items()} == {n: float(n in right) for n in found}
    assert {"pooled", "text_mean", "text_before_end_4", "image_best", "map"} <= {*found}
    assert of_one_patch == pytest.approx(1 / PATCHES if "image_best" in right else 0)
    assert {e.chance for e in found.values()} == {1 / 2}
    assert all(e.low <= e.value <= e.high for e in found.values())


def test_tokens_that_say_nothing_get_nothing_and_chance_if_ties_are_shared():
    strict, half, first = (
        accuracies(scorer_of(), tie=tie) for tie in ("strict", "half", "first_index")
    )
    assert {(e.value, e.ties) for e in strict.values()} == {(0, 1)}
    assert {e.value for e in half.values()} == {1 / 2}
    assert {e.value for e in first.values()} == {1}


def test_a_caption_without_such_a_token_is_left_out():
    cases = [*benchmark(4).cases, Case("short", (b"s",), ("a right", "wrong"))]
    found = accuracies(scorer_of(told_at=2, is_pooled_image=True), Benchmark("b", cases, "1"))
    counts = {name: e.count for name, e in found.items()}
    # "wrong" has its start two before the end, and nothing before that
    assert (counts["text_before_end_2"], counts["text_before_end_3"], counts["map"]) == (5, 4, 5)


def test_scores_do_not_depend_on_chunks_or_on_the_lengths_of_other_cases(monkeypatch):
    """Three options beside two: the third is no option of the others."""
    three = Case("3", (b"3",), ("b right", "c wrong", "a b wrong"))
    cases = Benchmark("b", [*benchmark(5).cases, three], "1")
    scorer = scorer_of(told_at=1, is_pooled_image=True, patch=2, is_pooled=True)
    together = accuracies(scorer, cases)
    monkeypatch.setattr(token_scores, "CHUNK", 1)
    assert accuracies(scorer, cases) == together
    assert together["pooled"].chance == pytest.approx((5 / 2 + 1 / 3) / 6)
    assert together["text_mean"].value == 1


def test_scores_are_mean_cosines():
    rng = np.random.default_rng(1)
    image, patches = rng.normal(size=8), rng.normal(size=(3, 8))
    texts, tokens = rng.normal(size=(1, 8)), rng.normal(size=(1, 4, 8))
    mask = np.array([[True, True, True, False]])  # the end is at place 2
    found = token_scores.case_scores(image, patches, texts, tokens, mask)

    def cosine(one, other):
        return sum(one * other) / math.dist(one, 0 * one) / math.dist(other, 0 * other)

    assert found["pooled"] == pytest.approx(cosine(image, texts[0]))
    assert found["text_mean"] == pytest.approx(np.mean([cosine(image, t) for t in tokens[0, :2]]))
    assert found["text_before_end_1"] == pytest.approx(cosine(image, tokens[0, 1]))
    best = [max(cosine(p, t) for p in patches) for t in tokens[0, :2]]
    assert found["map"] == pytest.approx(np.mean(best))
    assert found["image_best"] == pytest.approx(max(cosine(p, texts[0]) for p in patches))


def test_models_and_cases_without_such_tokens_are_refused():
    with pytest.raises(errors.UsageError, match="texts are vectors: leave it out"):
        accuracies(scorer_of()._replace(text_tokens=None))
    several = Benchmark("b", [Case("0", (b"a", b"b"), ("x",))], "1")
    with pytest.raises(DataError, match=r"one image per case; case '0' of 'b' has 2"):
        token_scores.check(several, scorer_of())

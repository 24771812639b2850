import dataclasses
import json

import numpy as np
import pytest
import scipy.stats

from vlc_jax.errors import UsageError
from vlc_jax.evaluators import Scorer, choice, pairs, stats
from vlc_jax.input_pipeline.benchmarks import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.tokenizers.text_vectors import TextVectors
from vlc_jax.types import ImageFeatures, TextFeatures

COUNT = 40


def benchmark(count=COUNT):
    names = [(b"%d 0" % n, b"%d 1" % n) for n in range(count)]
    cases = [Case(f"a/{n}", names[n], ("x", "y"), "odd" if n % 2 else "even") for n in range(count)]
    return Benchmark("b", cases, "1")


def model(angles, margins):
    """The two images of case n have an angle between them, and every case a plane of its own.
    Scores know their own captions by a margin."""

    def vector(image):
        n, k = map(int, image.split())
        out = np.zeros(2 * COUNT, np.float32)
        out[2 * n : 2 * n + 2] = np.cos(k * angles[n]), np.sin(k * angles[n])
        return 3 * out  # heads need not scale their features

    def score(images, texts):
        owner = np.argmax(np.abs(images.pooled).reshape(-1, COUNT, 2).sum(axis=2), axis=1)
        options = np.zeros((len(owner), 2))
        options[np.arange(len(owner)), np.arange(len(owner)) % 2] = margins[owner]
        return options

    embed = lambda images: ImageFeatures(np.stack([vector(image) for image in images]))  # noqa: E731
    texts = lambda strings: TextFeatures(np.zeros((len(strings), 1), np.float32))  # noqa: E731
    return Scorer(embed, texts, None, score)


@pytest.mark.parametrize("chunk", [4, 256])
def test_cosines_agreements_and_their_correlation_with_the_margin(chunk):
    angles = np.linspace(0.1, 1.2, COUNT)
    margins = np.random.default_rng(0).normal(size=COUNT) + angles
    result = pairs.evaluate(benchmark(), model(angles, margins), geometry=True, chunk=chunk)
    found, cosines = result.metrics, np.cos(angles)
    assert found["image_cosine"].value == pytest.approx(cosines.mean())
    assert found["image_cosine/odd"].value == pytest.approx(cosines[1::2].mean())
    assert found["image_cosine"].chance == pytest.approx(0, abs=1e-6)  # of different cases
    assert found["agreement"].value == (cosines > 0.95).mean()
    assert found["agreement"].chance == 0
    assert found["agreeing_accuracy"][:2] == ((margins[cosines > 0.95] > 0).mean(), 8)
    expected = scipy.stats.spearmanr(cosines, margins).statistic
    correlation = found["margin_correlation"]
    assert correlation.value == pytest.approx(expected)
    assert correlation.low < expected < correlation.high < 0 == correlation.chance
    rows = [row["image_cosine"] for row in result.per_example]
    np.testing.assert_allclose(rows, cosines, atol=1e-6)
    assert "erroneous_agreement" not in found


def test_geometry_changes_no_accuracy_and_is_there_only_if_asked_for():
    scorer = model(np.full(COUNT, 0.2), np.arange(COUNT) - 20.5)
    plain = pairs.evaluate(benchmark(), scorer).metrics
    more = pairs.evaluate(benchmark(), scorer, geometry=True).metrics
    assert {name: more[name] for name in plain} == plain
    # All cosines are the same but for rounding, which ranks nothing worth knowing.
    assert {name.split("/")[0] for name in more.keys() - plain.keys()} <= {
        *("image_cosine", "agreement", "agreement_macro", "margin_correlation", "agreeing_accuracy")
    }


@pytest.mark.parametrize("chunk", [3, 512])
def test_a_choice_of_paired_cases_has_the_cosines_of_their_images(chunk):
    """As What'sUp, whose cases of one image are pairs of left and right."""
    angles = np.linspace(0.1, 1.2, COUNT)
    scorer = model(angles, np.ones(COUNT))
    sides = [
        Case(f"{n}/{k}", (image,), ("x", "y"), {"subset": pair.group, "side": str(k)} | unit)
        for n, pair in enumerate(benchmark().cases)
        for k, image in enumerate(pair.images)
        for unit in [{"pair": str(n)} if n else {}]  # of an incomplete pair
    ]
    whole = Benchmark("w", sides, "1", together=("pair",))
    found = choice.evaluate(whole, scorer, geometry=True, chunk=chunk).metrics
    cosines = np.cos(angles)[1:]
    assert found["image_cosine"].value == pytest.approx(cosines.mean())
    assert found["image_cosine"].count == COUNT - 1
    assert found["image_cosine/subset=odd"].value == pytest.approx(cosines[::2].mean())
    assert found["agreement"].value == (cosines > 0.95).mean()
    assert "image_cosine/side=0" not in found
    assert "image_cosine" not in choice.evaluate(whole, scorer).metrics
    alone = Benchmark("alone", [dataclasses.replace(case, group=None) for case in sides], "1")
    with pytest.raises(UsageError, match="'alone' has no pairs"):
        choice.evaluate(alone, scorer, geometry=True)


def test_an_agreement_is_erroneous_where_other_features_differ(tmp_path):
    angles = np.where(np.arange(COUNT) < 30, 0.1, 1.0)
    different = np.arange(COUNT) % 3 == 0
    vectors, names = np.ones((2 * COUNT, 3), np.float32), []
    for n in range(COUNT):
        vectors[2 * n + 1, 1:] = -1 if different[n] else 1
        names += [f"a_{n}_0.png", f"a_{n}_1.png"]
    order = np.random.default_rng(0).permutation(2 * COUNT)
    path = tmp_path / "dino.npy"
    np.save(path, vectors[order])
    path.with_suffix(".jsonl").write_text("".join(json.dumps(names[i]) + "\n" for i in order))
    scorer, features = model(angles, np.ones(COUNT)), TextVectors(path)
    found = pairs.evaluate(benchmark(), scorer, second_features=features).metrics
    assert found["erroneous_agreement"].value == 10 / COUNT
    assert found["agreement"].value == 30 / COUNT
    assert found["other_cosine"].value == pytest.approx(1 - 14 / COUNT * 4 / 3)
    with pytest.raises(DataError, match="lacks features of some images of 'b', such as 'a_0_0"):
        pairs.evaluate(benchmark(COUNT + 1), scorer, second_features=features)


def test_spearman_with_ties_is_scipys_and_its_interval_covers_nothing_of_noise():
    rng = np.random.default_rng(1)
    one, other = rng.integers(0, 5, 200), rng.integers(0, 5, 200)
    found = stats.spearman(one, other)
    assert found.value == pytest.approx(scipy.stats.spearmanr(one, other).statistic)
    assert found.low < 0 < found.high
    assert stats.spearman(one, one).value == pytest.approx(1)
    assert stats.spearman(one, np.ones(200)) is None
    few = stats.spearman(np.array([1, 2]), np.array([1, 2]))
    assert (few.value, few.high) == (pytest.approx(1), pytest.approx(1))

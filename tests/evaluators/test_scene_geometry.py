"""Models that satisfy or violate the conditions of an ideal CLIP by construction.

Their features are computed from the scene graph of a picture and from the words of a text.
"""

import dataclasses
import functools
import math
import zlib

import numpy as np
import pytest

from vlc_jax import evaluators
from vlc_jax.evaluators import Scorer, binding, conditions, superposition, vectors
from vlc_jax.input_pipeline.benchmarks import PROTOCOL_OF, READERS, Benchmark, Case, scene_geometry
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.scenes import world as worlds
from vlc_jax.types import ImageFeatures, TextFeatures

MINI = worlds.named("scenes-mini")
WORDS = [*MINI.shapes, *MINI.colours, "no"]
APART = ("2.1", "2.3", "3.1", "3.2")
WIDTH = 512
AXES = np.eye(WIDTH)


@functools.cache
def direction(*meaning):
    """A direction of its own for every meaning, nearly orthogonal to all others."""
    rng = np.random.default_rng(zlib.crc32(repr(meaning).encode()))
    return rng.normal(size=WIDTH) / math.sqrt(WIDTH)


def words(text):
    """Sum of orthonormal word vectors."""
    return sum(AXES[WORDS.index(word)] for word in text.split() if word in WORDS)


def bag_of_words(scene):
    return words(" ".join(f"{obj.colour} {obj.shape}" for obj in scene.objects))


def ideal_image(scene):
    """Objects, attributes bound to them, their places, and what they have at which side."""
    total = np.zeros(WIDTH)
    for n, obj in enumerate(scene.objects):
        total += direction(obj.shape) + direction(obj.shape, obj.colour)
        total += 0.5 * direction(obj.shape, obj.x, obj.y)
        if len(scene.objects) == 2:
            total += 0.5 * direction(obj.shape, scene.relation(n, 1 - n))
    return total


def ideal_text(text):
    *before, shape = text.split()
    if before == ["no"]:
        return -direction(shape)
    return direction(shape) + sum(direction(shape, word) for word in before if word != "a")


def scorer_of(benchmark, image, text=words, noise=0.0):
    """A model of `image(scene)` and `text(string)`, pictures being recognised by their pixels."""
    cases = [*benchmark.cases, *benchmark.training, *benchmark.validation]
    scenes = {
        picture.tobytes(): worlds.from_json(graph, MINI)
        for case in cases
        for picture, graph in zip(case.images, case.meta["scenes"], strict=True)
    }

    def vector(picture):
        shaken = noise * direction(picture.tobytes())
        return vectors.unit(image(scenes[picture.tobytes()]) + shaken)

    def embed_texts(texts):
        return TextFeatures(np.stack([vectors.unit(text(each)) for each in texts]))

    def score_options(images, texts):
        options = texts.pooled.reshape(len(images.pooled), -1, WIDTH)
        return np.einsum("ie,ioe->io", images.pooled, options)

    embed_images = lambda pictures: ImageFeatures(np.stack([vector(p) for p in pictures]))  # noqa: E731
    return Scorer(embed_images, embed_texts, None, score_options)


def satisfied(benchmark, scorer, **options):
    found = conditions.evaluate(benchmark, scorer, **options).metrics
    return {name.split("/")[1]: e for name, e in found.items() if name.startswith("satisfied/")}


@pytest.fixture(scope="module")
def asked():
    return READERS["scenes_conditions"](count=256)


def test_a_bag_of_words_meets_the_conditions_of_words_and_no_others(asked):
    met = satisfied(asked, scorer_of(asked, bag_of_words))
    of_words = {"1.1a", "1.1a_all", "1.1b", "1.1b_all", "1.2a", "1.2b", "2.1", "2.2"}
    assert {name: e.value for name, e in met.items()} == {n: float(n in of_words) for n in met}
    assert met["3.3"].ties == 1.0


def test_an_ideal_model_meets_every_condition(asked):
    met = satisfied(asked, scorer_of(asked, ideal_image, ideal_text))
    assert len(met) == 16
    assert {name for name, e in met.items() if e.value < 1} == set()


def test_a_model_of_nothing_but_noise_is_at_chance(asked):
    met = satisfied(
        asked, scorer_of(asked, lambda scene: np.zeros(WIDTH), lambda t: direction(t), noise=1.0)
    )
    assert {name: e.chance for name, e in met.items() if name in APART} == dict.fromkeys(
        APART, pytest.approx(0.05)
    )
    assert met["1.1b_all"].chance == pytest.approx(1 / math.comb(10, 2))
    assert met["4.2_all"].chance == pytest.approx(1 / 10)
    # 16 intervals of 95 %: one may miss
    assert sum(not e.low <= e.chance <= e.high for e in met.values()) <= 1


@pytest.mark.parametrize("name", ["scenes_conditions", "scenes_superposition"])
def test_a_constant_model_gets_nothing_and_chance_if_ties_are_shared(name):
    benchmark = READERS[name](count=32)
    constant = scorer_of(benchmark, lambda scene: direction("same"), lambda text: direction("same"))
    constant = constant._replace(
        score_options=lambda i, t: np.ones((len(i.pooled), len(t.pooled) // len(i.pooled)))
    )
    evaluate = evaluators.PROTOCOLS[PROTOCOL_OF[name]].evaluate
    strict, first, half = (
        {
            name: e
            for name, e in evaluate(benchmark, constant, tie=tie).metrics.items()
            if e.unit == "fraction" and not name.endswith(APART)
        }
        for tie in ("strict", "first_index", "half")
    )
    for metric in strict.keys() - {"satisfied", "binding_visible"}:
        assert (strict[metric].value, strict[metric].ties, first[metric].value) == (0, 1, 1)
        assert half[metric].value == pytest.approx(half[metric].chance)


def test_a_difference_within_the_noise_of_renderings_does_not_count(asked):
    found = conditions.evaluate(asked, scorer_of(asked, bag_of_words, noise=0.3))
    assert found.metrics["satisfied/2.1"].value == 1
    assert found.metrics["satisfied/2.3"].value < 0.3
    assert found.metrics["noise_ratio/2.1"].low > 2
    assert found.metrics["noise_ratio/2.3"].high < 1.1
    assert found.details["noise_floor"]["2.3"] > 0.02
    noise = found.metrics["difference/2.3"]
    assert noise.value == pytest.approx(noise.chance, rel=0.1)


def test_conditions_do_not_depend_on_the_chunk(asked):
    scorer = scorer_of(asked, ideal_image, ideal_text)
    few, many = (conditions.evaluate(asked, scorer, chunk=n) for n in (7, 512))
    assert few.per_example == many.per_example
    assert few.metrics == many.metrics


def test_equal_pictures_are_no_distance_apart():
    picture = np.random.default_rng(0).normal(size=(1, 7)).astype(np.float32)
    assert vectors.cosine(picture, picture.copy())[0] == 1


def test_a_bag_of_words_is_the_sum_of_its_objects_and_binding_collapses():
    benchmark = READERS["scenes_superposition"](count=60)
    found = superposition.evaluate(benchmark, scorer_of(benchmark, bag_of_words), chunk=13).metrics
    values = {name: e.value for name, e in found.items()}
    exactly = {
        "superposition": 1,
        "binding_visible": 0,
        "sum_cosine": 1,
        "sum_residual": 0,
        "rendering_residual": 0,
        "first_coefficient": math.sqrt(1 / 2),  # both objects have four words, each alone two
        "second_coefficient": math.sqrt(1 / 2),
        "exchanged_cosine": 1,
        "exchanged_cosine_centred": 1,
        "text_first_coefficient": math.sqrt(1 / 2),  # texts and images of a word are one vector
        "text_second_coefficient": math.sqrt(1 / 2),
        "text_residual": 0,
    }
    assert {name: values[name] for name in exactly} == pytest.approx(exactly, abs=1e-9)
    assert values["text_residual_centred"] == pytest.approx(values["sum_residual_centred"])
    assert found["sum_cosine"].chance < 0.8
    alone = np.stack(
        [
            vectors.unit(bag_of_words(worlds.from_json(case.meta["scenes"][k], MINI)))
            for case in benchmark.cases
            for k in (1, 2)
        ]
    )
    assert values["cone"] == pytest.approx(np.linalg.norm(alone.mean(axis=0)))


def test_texts_of_other_objects_leave_the_residual_that_chance_names():
    benchmark = READERS["scenes_superposition"](count=60)
    scorer = scorer_of(benchmark, bag_of_words, lambda text: direction(text))
    found = superposition.evaluate(benchmark, scorer).metrics
    assert found["text_residual"].value > 0.95
    assert found["text_residual"].value == pytest.approx(found["text_residual"].chance, abs=0.01)
    assert abs(found["text_first_coefficient"].value) < 0.05
    bare = tuple(dataclasses.replace(case, captions=()) for case in benchmark.cases)
    untitled = dataclasses.replace(benchmark, cases=bare)
    without = superposition.evaluate(untitled, scorer).metrics
    assert {*found} - {*without} == {name for name in found if name.startswith("text_")}
    mixed = dataclasses.replace(benchmark, cases=(*benchmark.cases[:1], *bare[1:]))
    with pytest.raises(DataError, match="3 texts or none in any"):
        superposition.evaluate(mixed, scorer)


def test_an_ideal_model_binds_and_is_more_than_the_sum():
    benchmark = READERS["scenes_superposition"](count=60)
    found = superposition.evaluate(benchmark, scorer_of(benchmark, ideal_image)).metrics
    assert found["binding_visible"].value == 1
    assert found["sum_residual"].low > 0.01
    assert found["exchanged_cosine"].high < 0.9


def test_least_squares_coefficients_are_those_of_numpy():
    target, first, second = np.random.default_rng(0).normal(size=(3, 5, 8))
    coefficients, residual = superposition.fit(target, first, second)
    for n in range(5):
        basis = np.stack([first[n], second[n]], axis=1)
        expected, left, *_ = np.linalg.lstsq(basis, target[n])
        np.testing.assert_allclose(coefficients[n], expected)
        assert residual[n] == pytest.approx(left[0] / (target[n] @ target[n]))


@pytest.mark.parametrize("kind", ["attribute", "relation"])
def test_a_probe_decodes_what_the_score_of_a_bag_of_words_cannot(kind, monkeypatch):
    monkeypatch.setattr(scene_geometry, "PAIRS", 3)
    monkeypatch.setattr(scene_geometry, "LEARNED", {"training": 12, "validation": 4})
    benchmark = READERS["scenes_binding"](count=36, kind=kind)

    def hidden(scene):
        """A bag of words and, in directions that no text has, what it forgets."""
        first, second = scene.objects
        links = [(o.shape, o.colour) for o in scene.objects]
        if kind == "relation":
            links = [first.shape, scene.relation(0, 1), second.shape]
        return bag_of_words(scene) + 0.3 * direction(*links)

    blind = binding.evaluate(benchmark, scorer_of(benchmark, bag_of_words), tie="half").metrics
    assert (blind["probe_accuracy"].value, blind["score_accuracy"].value) == (0.5, 0.5)
    assert blind["score_accuracy"].ties == 1
    orthogonal = scorer_of(benchmark, hidden)
    orthogonal = orthogonal._replace(score_options=scorer_of(benchmark, bag_of_words).score_options)
    seen = binding.evaluate(benchmark, orthogonal).metrics
    assert seen["probe_accuracy"].value == 1
    assert seen["score_accuracy"].value < 0.8
    assert seen["gain"].value == 1 - seen["score_accuracy"].value
    ideal = scorer_of(benchmark, hidden)
    assert binding.evaluate(benchmark, ideal, tie="half", chunk=7).metrics["gain"].low > 0


def test_cases_of_another_protocol_are_refused_by_name():
    other = Benchmark("b", [Case("x7", (b"i",), ("a", "b"))], "1")
    scorer = Scorer(*[lambda: None] * 4)
    with pytest.raises(DataError, match="needs training, validation, cases; 'b' lacks some"):
        binding.evaluate(other, scorer)

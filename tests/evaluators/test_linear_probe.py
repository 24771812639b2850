import dataclasses

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from vlc_jax.evaluators import Scorer, linear_probe
from vlc_jax.input_pipeline.benchmarks import READERS, Benchmark, Case
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.types import ImageFeatures

SIZES = {"training": 120, "validation": 60, "cases": 90}


def world(noise):
    """Images are unit vectors of 6 numbers, the sign of one of which is the class."""
    rng, parts, vectors = np.random.default_rng(0), {}, {}
    for part, size in SIZES.items():
        parts[part] = []
        for n in range(size):
            label, name = n % 2, f"{part} {n}".encode()
            vectors[name] = rng.normal(size=6) * noise
            vectors[name][3] += 2 * label - 1
            parts[part].append(Case(f"{part}{n}", (name,), (), None, {"label": label}))
    embed = lambda images: ImageFeatures(np.stack([vectors[image] for image in images]))  # noqa: E731
    benchmark = Benchmark("b", version="1", classes=("low", "high"), **parts)
    return benchmark, Scorer(embed, None, None, None), vectors


def test_the_probe_is_scikit_learns_with_the_best_c_fitted_on_both_parts():
    benchmark, scorer, vectors = world(noise=1.0)
    result = linear_probe.evaluate(benchmark, scorer, chunk=7)
    chosen = result.details["C"]
    validation = result.details["validation"]
    assert validation[f"{chosen:g}"] == max(validation.values())
    unit = {name: v / np.linalg.norm(v) for name, v in vectors.items()}
    x, y = zip(
        *((unit[c.images[0]], c.meta["label"]) for c in benchmark.training + benchmark.validation),
        strict=True,
    )
    probe = LogisticRegression(C=chosen, max_iter=1000).fit(x, y)
    predicted = probe.predict([unit[case.images[0]] for case in benchmark.cases])
    right = predicted == [case.meta["label"] for case in benchmark.cases]
    assert result.metrics["accuracy"].value == right.mean() > 0.7
    assert [row["correct"] for row in result.per_example] == right.tolist()
    assert result.metrics["accuracy"].chance == 1 / 2


def test_what_is_linearly_decodable_is_decoded_and_noise_is_not():
    benchmark, scorer, _ = world(noise=0.1)
    assert linear_probe.evaluate(benchmark, scorer).metrics["accuracy"].value == 1
    benchmark, scorer, _ = world(noise=1e4)
    accuracy = linear_probe.evaluate(benchmark, scorer).metrics["accuracy"]
    assert accuracy.low < 1 / 2 < accuracy.high


def test_a_probe_without_training_or_with_unlearned_classes_is_refused():
    benchmark, scorer, _ = world(noise=1)
    with pytest.raises(DataError, match="a linear probe needs validation; 'b' has none"):
        linear_probe.evaluate(dataclasses.replace(benchmark, validation=()), scorer)
    one_class = dataclasses.replace(benchmark, training=benchmark.training[::2])
    with pytest.raises(DataError, match="class 'high', which training lacks"):
        linear_probe.evaluate(one_class, scorer)


def test_the_reader_keeps_test_training_and_validation_apart():
    benchmark = READERS["linear_probe"](count=20, train_count=100)
    parts = (benchmark.cases, benchmark.training, benchmark.validation)
    assert [len(part) for part in parts] == [20, 80, 20]
    ids = [case.meta["record"] for part in parts for case in part]
    assert len(set(ids)) == 120
    given = READERS["linear_probe"](validation_split="validation")
    validation = {case.meta["record"] for case in given.validation}
    assert len(validation) == 179
    assert len(given.training) == 1258
    assert not validation & {case.meta["record"] for case in given.training}


def clusters(classes, images, width=12, seed=0):
    """Unit vectors around a centre per class, and labels that leave out number 1."""
    rng = np.random.default_rng(seed)
    centres, y = np.random.default_rng(9).normal(size=(classes, width)), np.arange(images) % classes
    x = centres[y] + 1.5 * rng.normal(size=(images, width))
    return x / np.linalg.norm(x, axis=1, keepdims=True), y + (y > 0)


def test_a_probe_predicts_as_the_minimum_of_the_loss():
    c = 1e3
    for width, classes in ((12, 10), (64, 20)):  # classes overlap, or planes part them
        (x, y), (new, _) = (clusters(classes, n, width, seed) for n, seed in ((400, 0), (600, 1)))
        exact = LogisticRegression(C=c, tol=1e-10, solver="newton-cg", max_iter=10_000).fit(x, y)
        assert (exact.score(x, y) == 1) == (width == 64)
        assert (linear_probe._fit(x, y, c).predict(new) == exact.predict(new)).all()


def test_many_classes_do_not_end_the_fit_before_its_first_step(monkeypatch):
    # as of ImageNet, the first gradient is below scikit-learn's tolerance
    x, y = clusters(60, 240, width=40)
    x = np.concatenate([x, np.full((240, 1), 20.0)], axis=1)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    assert LogisticRegression(C=1e4, tol=1e-3).fit(x, y).n_iter_[0] == 0
    monkeypatch.setattr(linear_probe, "TOLERANCE", 1e-3)
    assert (linear_probe._fit(x, y, 1e4).predict(x) == y).mean() > 0.9

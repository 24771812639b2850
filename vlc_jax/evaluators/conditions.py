"""Conditions of an ideal CLIP: inequalities between similarities of images and texts.

Conditions 1.1 to 4.2 of "Is CLIP ideal? No. Can we fix it? Yes!" (ICCV 2025). Where the paper asks
that two embeddings differ, "cos < 1", which holds for any two images, they must differ here by more
than the noise floor: the 95th percentile of differences between two renderings of one scene.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from vlc_jax.evaluators import groups, stats, ties
from vlc_jax.evaluators.cases import check_cases, chunked, row
from vlc_jax.evaluators.scorer import Scorer, embed_texts_once, take
from vlc_jax.evaluators.vectors import cosine
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.types import ImageFeatures, TextFeatures

# quantile of the differences between two renderings of a scene
FLOOR = 0.95


def evaluate(
    benchmark: Benchmark, scorer: Scorer, *, tie: str = "strict", chunk: int = 512
) -> stats.EvalResult:
    """Share of cases that satisfy their condition, overall and per condition, and the margins.

    satisfied          all conditions; satisfied/NAME: one of them
    margin/NAME        min of the similarities that must be larger - max of the others
    difference/NAME    mean 1 - cos of two images that must differ; `chance`: of two renderings
    noise_ratio/NAME   difference / noise floor, if the floor is not 0

    Chance of an inequality: a random order of the similarities; of a difference: 1 - FLOOR.
    An image and a text are compared by the model's score, two images or two texts by the cosine of
    their pooled features. `above`, `below` and `is_apart` in a case's `meta` name the similarities
    (input_pipeline/benchmarks/scene_geometry.py). details: the noise floors.

    tie: see `ties`; for inequalities. A difference must exceed the floor under any policy.

    Raises:
      UsageError: an unknown tie policy. DataError: a benchmark without such cases.
    """
    ties.check(tie)
    check_cases(
        benchmark,
        "a condition has a group, and names similarities in meta['above'] and meta['below']",
        lambda case: case.group and case.meta.get("above") and case.meta.get("below"),
    )
    cases = benchmark.cases
    sides = [pair for part in chunked(cases, chunk) for pair in similarities(part, scorer)]
    stats.require_finite(np.concatenate([side for pair in sides for side in pair]), benchmark.name)
    lowest = np.array([above.min() for above, _ in sides])
    highest = np.array([below.max() for _, below in sides])
    names = np.array([str(case.group) for case in cases])
    apart = np.array([case.meta["is_apart"] for case in cases])
    floors = {
        name: float(np.quantile(1 - highest[apart & (names == name)], FLOOR))
        for name in dict.fromkeys(names[apart].tolist())
    }
    floor = np.array([floors.get(name, 0.0) for name in names])
    right = np.where(apart, 1 - lowest > floor, [_credit(*row, tie) for row in sides])
    tied = np.where(apart, 1 - lowest == floor, lowest == highest)
    chance = np.array([_chance(case) for case in cases])
    decisions = groups.Decisions(names.tolist(), right, chance, tied, stats.images_of(cases))
    metrics = groups.metrics("satisfied", decisions, benchmark)
    del metrics["satisfied_macro"]  # redundant: conditions take turns
    metrics |= _sizes(lowest, highest, names, floors)
    rows = [
        _row(case, above, below, right[n] == 1, tied[n])
        for n, (case, (above, below)) in enumerate(zip(cases, sides, strict=True))
    ]
    return stats.EvalResult(metrics, rows, {"tie": tie, "noise_floor": floors, "quantile": FLOOR})


def _credit(above: np.ndarray, below: np.ndarray, tie: str) -> float:
    """Credit for all `above` exceeding all `below`; first_index prefers `above`, last_index
    `below`."""
    if above.min() != below.max() or tie in ("strict", "last_index"):
        return float(above.min() > below.max())
    if tie == "first_index":
        return 1.0
    equal = int((above == above.min()).sum())
    # ties broken at random: all equal ones of `above` must come before those of `below`
    return 1 / math.comb(equal + int((below == above.min()).sum()), equal)


def _sizes(
    lowest: np.ndarray, highest: np.ndarray, names: np.ndarray, floors: dict[str, float]
) -> dict[str, stats.Estimate]:
    """Margins of inequalities; differences, with those of renderings as chance."""
    metrics = {}
    for name in dict.fromkeys(names.tolist()):
        rows = names == name
        if name not in floors:
            metrics[f"margin/{name}"] = stats.mean((lowest - highest)[rows], unit="score")
            continue
        differences, noise = (1 - lowest)[rows], float((1 - highest)[rows].mean())
        metrics[f"difference/{name}"] = stats.mean(differences, unit="score")._replace(chance=noise)
        if floors[name] > 0:
            metrics[f"noise_ratio/{name}"] = stats.mean(differences / floors[name], unit="score")
    return metrics


def similarities(cases: Sequence[Case], scorer: Scorer) -> list[tuple[np.ndarray, np.ndarray]]:
    """(above, below) of each case: the similarities named in its `meta`."""
    images = scorer.embed_images([image for case in cases for image in case.images])
    texts = [text for case in cases for text in case.captions]
    written = embed_texts_once(scorer, texts) if texts else None
    rows, image, text = dict[tuple[str, str], list[tuple[int, int]]](), 0, 0
    for case in cases:
        start = {"i": image, "t": text}
        for one, other in (*case.meta["above"], *case.meta["below"]):
            pair = start[one[0]] + int(one[1:]), start[other[0]] + int(other[1:])
            rows.setdefault((one[0], other[0]), []).append(pair)
        image, text = image + len(case.images), text + len(case.captions)
    values = {
        kinds: iter(_values(kinds, np.array(pairs), images, written, scorer))
        for kinds, pairs in rows.items()
    }
    return [
        tuple(
            np.array([next(values[one[0], other[0]]) for one, other in case.meta[side]])
            for side in ("above", "below")
        )
        for case in cases
    ]


def _values(
    kinds: tuple[str, str],
    pairs: Int[np.ndarray, "cases 2"],
    images: ImageFeatures,
    texts: TextFeatures | None,
    scorer: Scorer,
) -> np.ndarray:
    left, right = pairs.T
    if kinds == ("i", "t"):
        scores = scorer.score_options(take(images, left), take(texts, right))
        return np.asarray(scores, np.float64)[:, 0]
    pooled = (images if kinds == ("i", "i") else texts).pooled
    return cosine(pooled[left], pooled[right])


def _chance(case: Case) -> float:
    """Probability that a random order has all m of `above` before all n of `below`:
    m! n! / (m + n)!."""
    if case.meta["is_apart"]:
        return 1 - FLOOR
    above, below = len(case.meta["above"]), len(case.meta["below"])
    return 1 / math.comb(above + below, above)


def _row(
    case: Case, above: np.ndarray, below: np.ndarray, right: object, tie: object
) -> dict[str, Any]:
    """Per-example row: similarities in the order above, below, named by their two sides."""
    names = {f"t{n}": text for n, text in enumerate(case.captions)}
    names |= {f"i{n}": f"image {n}" for n in range(len(case.images))}
    pairs = (*case.meta["above"], *case.meta["below"])
    compared = [f"{names[one]} · {names[other]}" for one, other in pairs]
    return row(case, compared, [*above.tolist(), *below.tolist()], right, tie)

"""Results split by whether training captions hold the bindings of caption and wrong caption.

`add` puts the groups of `hard_texts.bindings.group` into results, from the stored scores of their
cases: no model is run.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from vlc_jax.input_pipeline.hard_texts import bindings
from vlc_jax.report import table
from vlc_jax.report.paired import Z
from vlc_jax.report.read_workdir import Run, has_scores, mapping, score_rows

# protocol -> its metric that is split; each decides between captions of one image
METRICS = {"choice": "accuracy", "triplet": "original_accuracy", "pairs": "individual_accuracy"}


class Decision(NamedTuple):
    """One image with its caption and wrong captions."""

    caption: str
    wrong: tuple[str, ...]
    is_right: bool
    is_tie: bool
    image: str  # decisions of one image or pair of images are not independent


def add(run: Run, results: Iterable[dict[str, Any]], training: bindings.Training) -> list[str]:
    """Adds METRIC/overlap=GROUP to results and to their summaries, in place.

    results: of `run`, one per benchmark. A tie counts as an error; results in which it does not are
      not split.

    Returns sentences: table, tagger and rule, and the benchmarks that are not split.
    Raises DataError for a caption that the tagger cannot tag.
    """
    without, tied = [], []
    for result in results:
        decisions = [*_decisions(score_rows(run, str(result["benchmark"]), result), result)]
        policy = mapping(result.get("details")).get("tie", "strict")
        if policy != "strict" and any(each.is_tie for each in decisions):
            tied.append(table.name_of(result))
            continue
        by_group: dict[str, list[Decision]] = {}
        for each in decisions:
            by_group.setdefault(bindings.group(training, each.caption, each.wrong), []).append(each)
        # a set of orders of words, or of objects alone
        if not by_group.keys() - {bindings.NONE}:
            without.append(table.name_of(result))
            continue
        for group in (*bindings.GROUPS.values(), bindings.NONE):
            if group in by_group:
                metric = f"{METRICS[result['protocol']]}/overlap={group}"
                result["metrics"][metric] = _estimate(by_group[group])
                result["summary"] = [*(result.get("summary") or ()), metric]
    return [*_sentences(training, without, tied)]


def _decisions(rows: Iterable[Mapping[str, Any]], result: Mapping[str, Any]) -> Iterator[Decision]:
    """Decisions between captions; none of a protocol, or of rows, that have no such ones."""
    protocol = result.get("protocol")
    for row in rows if protocol in METRICS else ():
        if not has_scores(row) or not all(isinstance(text, str) for text in row["captions"]):
            continue
        captions, scores = row["captions"], row["scores"]
        image = str(row.get("image", row.get("id")))
        if protocol == "pairs":
            by_image = enumerate(scores)
        elif len(captions) < 2 or isinstance(scores[0], list):
            continue  # options that are images
        else:
            by_image = [(0, scores[:2] if protocol == "triplet" else scores)]
        for correct, values in by_image:
            wrong = [k for k in range(len(values)) if k != correct]
            best = max(values[k] for k in wrong)
            texts = tuple([captions[k] for k in wrong])
            is_right, is_tie = values[correct] > best, values[correct] == best
            yield Decision(captions[correct], texts, is_right, is_tie, image)


def _estimate(decisions: Sequence[Decision]) -> dict[str, Any]:
    """A metric of evals/*.json: share of right decisions, Wilson's interval over images (as
    `evaluators.stats.proportion`)."""
    right = np.array([each.is_right for each in decisions], np.float64)
    value, count = float(right.mean()), len(right)
    number = _effective_count(right, [each.image for each in decisions])
    low, high = _wilson(value, number)
    return {
        "value": value,
        "count": count,
        "chance": float(np.mean([1 / (1 + len(each.wrong)) for each in decisions])),
        "low": low,
        "high": high,
        "ties": float(np.mean([each.is_tie for each in decisions])),
        "unit": "fraction",
    }


def _effective_count(right: np.ndarray, images: Sequence[str]) -> float:
    """Number of decisions by Kish's design effect of those that share an image."""
    _, index = np.unique(images, return_inverse=True)
    number, count, value = int(index.max()) + 1, len(right), right.mean()
    variance = value * (1 - value) / count
    if number in (1, count) or variance == 0:
        return number
    residuals = np.bincount(index, weights=right - value)
    clustered = number / (number - 1) * np.sum(residuals**2) / count**2
    return count / max(1.0, clustered / variance)


def _wilson(value: float, count: float) -> tuple[float, float]:
    """Wilson's score interval of the proportion `value` of `count` draws, as evaluators.stats."""
    centre = value + Z**2 / (2 * count)
    half = Z * math.sqrt(value * (1 - value) / count + Z**2 / (4 * count**2))
    scale = 1 + Z**2 / count
    # rounding may put a limit outside [0, 1] or on the wrong side of the value
    low, high = min((centre - half) / scale, value), max((centre + half) / scale, value)
    return max(0.0, low), min(1.0, high)


def _sentences(
    training: bindings.Training, without: Sequence[str], tied: Sequence[str]
) -> Iterator[str]:
    yield (
        f"Overlap with {training.path.name}: {len(training):,} different bindings (attribute and "
        f"object; subject, relation and object), found by {training.tagger.name} "
        f"{training.tagger.version}. A caption is seen if training captions hold all of its "
        "bindings that the other caption lacks."
    )
    if without:
        yield f"No binding to split by: {', '.join(without)}."
    if tied:
        yield f"Not split, since ties do not count as errors: {', '.join(tied)}."

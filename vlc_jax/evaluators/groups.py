"""Metrics per group of cases, their means, and groups that count as one case."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Num, Shaped

from vlc_jax.evaluators import stats
from vlc_jax.evaluators.stats import Estimate
from vlc_jax.input_pipeline.case import Benchmark


class Decisions(NamedTuple):
    """The decisions of one metric, one or more a case.

    groups: `Case.group` of each.   credit: in [0, 1].   chance: of each.   ties: where the correct
    option shared the highest score.   clusters: as in `stats.proportion`.
    """

    groups: Sequence[Any]
    credit: Num[np.ndarray, " examples"] | Bool[np.ndarray, " examples"]
    chance: Float[np.ndarray, " examples"]
    ties: Bool[np.ndarray, " examples"]
    clusters: Shaped[np.ndarray, " examples"] | None = None

    def take(self, rows: Sequence[int]) -> "Decisions":
        """The decisions of some rows."""
        groups = [self.groups[row] for row in rows]
        arrays = (None if array is None else array[rows] for array in self[1:])
        return Decisions(groups, *arrays)

    def proportion(self) -> Estimate:
        """The mean credit over all decisions."""
        return stats.proportion(self.credit, float(self.chance.mean()), self.ties, self.clusters)


def metrics(name: str, decisions: Decisions, benchmark: Benchmark) -> dict[str, Estimate]:
    """A metric over all decisions, per group, and as means over groups.

    name                   over all
    name/LABEL             of the cases of a group, where `Case.group` is a label
    name_macro             the unweighted mean of these
    name/KIND=LABEL        where `Case.group` is an object: of each kind
    name_AVERAGE           the means over groups that the benchmark names (`Benchmark.averages`)

    A mean whose groups are all too small or left out is not there.
    """
    return {name: decisions.proportion()} | _by_group(name, decisions, benchmark)


def together(decisions: Decisions, benchmark: Benchmark) -> dict[str, Estimate]:
    """The share of groups whose cases are all right, for each kind of `Benchmark.together`.

    KIND_accuracy, with groups and means as in `metrics`, of the kinds whose label all cases of the
    group share. Its chance is the product of the cases' chances.
    """
    found = {}
    for kind in benchmark.together:
        units: dict[str, list[int]] = {}
        for row, group in enumerate(decisions.groups):
            if kind in (labels := labels_of(group)):
                units.setdefault(labels[kind], []).append(row)
        if units:
            rows = list(units.values())
            merged = Decisions(
                [_shared_labels([decisions.groups[row] for row in unit]) for unit in rows],
                # Independent draws where ties share credit: the chance that all are right.
                np.array([np.prod(decisions.credit[unit]) for unit in rows], np.float64),
                np.array([np.prod(decisions.chance[unit]) for unit in rows]),
                np.array([decisions.ties[unit].any() for unit in rows]),
            )
            found |= metrics(f"{kind}_accuracy", merged, benchmark)
    return found


def mean_scores(
    name: str, values: Float[np.ndarray, " cases"], groups: Sequence[Any], benchmark: Benchmark
) -> dict[str, Estimate]:
    """The mean of scores over all cases and per group, and the benchmark's means over groups."""
    labels = [labels_of(group) for group in groups]
    found = {name: stats.mean(values, unit="score")}
    for kind in _reported_kinds(labels, benchmark):
        equals = f"{kind}=" if kind else ""
        for (label,), rows in _rows(labels, (kind,)).items():
            found[f"{name}/{equals}{label}"] = stats.mean(values[rows], unit="score")
    for average, how in benchmark.averages.items():
        if len(how.by) == 1 and how.floor == 0 and not how.drop:  # the mean of subsets
            parts = [stats.mean(values[rows], "score") for rows in _rows(labels, how.by).values()]
            if parts:
                found[f"{name}_{average}"] = stats.mean_of_means(parts)
    return found


def labels_of(group: Any) -> dict[str, str]:
    """Kinds and labels of `Case.group`; a single label is of the kind ""."""
    if group is None:
        return {}
    if isinstance(group, dict):
        return {kind: group_name(label) for kind, label in group.items() if label is not None}
    return {"": group_name(group)}


def group_name(group: Any) -> str:
    """Name of a group within a metric's name: strings as they are, other JSON written out."""
    return group if isinstance(group, str) else json.dumps(group, sort_keys=True)


def _by_group(name: str, decisions: Decisions, benchmark: Benchmark) -> dict[str, Estimate]:
    labels = [labels_of(group) for group in decisions.groups]
    found: dict[str, Estimate] = {}
    for kind in _reported_kinds(labels, benchmark):
        of_kind = {
            label: part.proportion() for label, part in _split(decisions, labels, (kind,)).items()
        }
        equals = f"{kind}=" if kind else ""
        found |= {f"{name}/{equals}{label}": each for (label,), each in of_kind.items()}
        if not kind:
            found[f"{name}_macro"] = stats.macro(list(of_kind.values()))
    for average, how in benchmark.averages.items():
        groups = {
            path: part.proportion()
            for path, part in _split(decisions, labels, how.by).items()
            if len(part.credit) >= how.floor and path[-1] not in how.drop
        }
        if groups:
            found[f"{name}_{average}"] = _nested(groups)
    return found


def _reported_kinds(labels: Sequence[Mapping[str, str]], benchmark: Benchmark) -> list[str]:
    """Kinds of groups with a metric each; groups that count as one case are too many for that."""
    kinds = dict.fromkeys(kind for each in labels for kind in each)
    return [kind for kind in kinds if kind not in benchmark.together]


def _split(
    decisions: Decisions, labels: Sequence[Mapping[str, str]], by: tuple[str, ...]
) -> dict[tuple[str, ...], Decisions]:
    """Decisions by their labels of the kinds `by`, in alphabetic order; without those that lack
    one."""
    return {path: decisions.take(rows) for path, rows in _rows(labels, by).items()}


def _rows(
    labels: Sequence[Mapping[str, str]], by: tuple[str, ...]
) -> dict[tuple[str, ...], list[int]]:
    rows: dict[tuple[str, ...], list[int]] = {}
    for row, each in enumerate(labels):
        if all(kind in each for kind in by):
            rows.setdefault(tuple(each[kind] for kind in by), []).append(row)
    return dict(sorted(rows.items()))


def _nested(groups: Mapping[tuple[str, ...], Estimate]) -> Estimate:
    """The mean over the first labels of the mean over the second ones, and so on."""
    while len(next(iter(groups))) > 1:
        parents: dict[tuple[str, ...], list[Estimate]] = {}
        for path, estimate in groups.items():
            parents.setdefault(path[:-1], []).append(estimate)
        groups = {path: stats.macro(children) for path, children in parents.items()}
    return stats.macro(list(groups.values()))


def _shared_labels(groups: Sequence[Any]) -> dict[str, str]:
    """Labels that all these groups have."""
    first, *others = (labels_of(group) for group in groups)
    return {
        kind: label for kind, label in first.items() if all(o.get(kind) == label for o in others)
    }

"""Metrics per group of cases, means over groups, and groups as units."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Num, Shaped

from vlc_jax.evaluators import stats
from vlc_jax.evaluators.stats import Estimate
from vlc_jax.input_pipeline.case import Benchmark


class Decisions(NamedTuple):
    """Decisions of one metric, one or more per case.

    groups: `Case.group` of each.   credit, chance: in [0, 1].   ties: where the correct option
    shared the highest score.   clusters: as in `stats.proportion`.
    """

    groups: Sequence[Any]
    credit: Num[np.ndarray, " examples"] | Bool[np.ndarray, " examples"]
    chance: Float[np.ndarray, " examples"]
    ties: Bool[np.ndarray, " examples"]
    clusters: Shaped[np.ndarray, " examples"] | None = None

    def take(self, rows: Sequence[int]) -> "Decisions":
        """Decisions of some rows."""
        groups = [self.groups[row] for row in rows]
        arrays = (None if array is None else array[rows] for array in self[1:])
        return Decisions(groups, *arrays)

    def proportion(self) -> Estimate:
        """Mean credit over all decisions."""
        return stats.proportion(self.credit, float(self.chance.mean()), self.ties, self.clusters)


def metrics(name: str, decisions: Decisions, benchmark: Benchmark) -> dict[str, Estimate]:
    """A metric over all decisions, per group, and as means over groups.

    name                   over all decisions
    name/LABEL             over a group, if `Case.group` is a label
    name_macro             unweighted mean of name/LABEL
    name/KIND=LABEL        over a group of each kind, if `Case.group` is an object
    name_AVERAGE           means over groups in `Benchmark.averages`

    A mean without any group that is large enough is omitted.
    """
    labels = [labels_of(group) for group in decisions.groups]
    estimates = {name: decisions.proportion()}
    for kind in _reported_kinds(labels, benchmark):
        group_estimates = {
            label: decisions.take(rows).proportion()
            for label, rows in rows_by(labels, (kind,)).items()
        }
        equals = f"{kind}=" if kind else ""
        estimates |= {f"{name}/{equals}{label}": each for (label,), each in group_estimates.items()}
        if not kind:
            estimates[f"{name}_macro"] = stats.macro(list(group_estimates.values()))
    for average, how in benchmark.averages.items():
        groups = {
            path: decisions.take(rows).proportion()
            for path, rows in rows_by(labels, how.by).items()
            if len(rows) >= how.floor and path[-1] not in how.drop
        }
        if groups:
            estimates[f"{name}_{average}"] = _nested(groups)
    return estimates


def together(decisions: Decisions, benchmark: Benchmark) -> dict[str, Estimate]:
    """Share of groups whose cases are all right, for each kind of `Benchmark.together`.

    KIND_accuracy, with groups and means as in `metrics` for the kinds whose label all cases of the
    unit share. Its chance is the product of the cases' chances.
    """
    labels, estimates = [labels_of(group) for group in decisions.groups], {}
    for kind in benchmark.together:
        if rows := list(rows_by(labels, (kind,)).values()):
            merged = Decisions(
                [shared_labels([labels[row] for row in unit]) for unit in rows],
                # product: shared ties are broken independently
                np.array([np.prod(decisions.credit[unit]) for unit in rows], np.float64),
                np.array([np.prod(decisions.chance[unit]) for unit in rows]),
                np.array([decisions.ties[unit].any() for unit in rows]),
            )
            estimates |= metrics(f"{kind}_accuracy", merged, benchmark)
    return estimates


def mean_scores(
    name: str, values: Float[np.ndarray, " cases"], groups: Sequence[Any], benchmark: Benchmark
) -> dict[str, Estimate]:
    """Mean score over all cases and per group, and the benchmark's means over groups."""
    labels = [labels_of(group) for group in groups]
    estimates = {name: stats.mean(values, unit="score")}
    for kind in _reported_kinds(labels, benchmark):
        equals = f"{kind}=" if kind else ""
        for (label,), rows in rows_by(labels, (kind,)).items():
            estimates[f"{name}/{equals}{label}"] = stats.mean(values[rows], unit="score")
    for average, how in benchmark.averages.items():
        if len(how.by) == 1 and how.floor == 0 and not how.drop:  # the mean of subsets
            parts = [stats.mean(values[rows], "score") for rows in rows_by(labels, how.by).values()]
            if parts:
                estimates[f"{name}_{average}"] = stats.mean_of_means(parts)
    return estimates


def labels_of(group: Any) -> dict[str, str]:
    """Kind -> label of `Case.group`; a single label has the kind ""."""
    if group is None:
        return {}
    if isinstance(group, dict):
        return {kind: group_name(label) for kind, label in group.items() if label is not None}
    return {"": group_name(group)}


def group_name(group: Any) -> str:
    """Name of a group within a metric's name: a string unchanged, other values as JSON."""
    return group if isinstance(group, str) else json.dumps(group, sort_keys=True)


def _reported_kinds(labels: Sequence[Mapping[str, str]], benchmark: Benchmark) -> list[str]:
    """Kinds of groups with metrics of their own; units (`together`) are too many for that."""
    # a dict, not a set: metrics keep the order of the cases
    kinds = dict.fromkeys(kind for each in labels for kind in each)
    return [kind for kind in kinds if kind not in benchmark.together]


def rows_by(
    labels: Sequence[Mapping[str, str]], by: tuple[str, ...]
) -> dict[tuple[str, ...], list[int]]:
    """Rows by their labels of the kinds `by`, sorted; rows that lack one are dropped."""
    rows: dict[tuple[str, ...], list[int]] = {}
    for row, each in enumerate(labels):
        if all(kind in each for kind in by):
            rows.setdefault(tuple(each[kind] for kind in by), []).append(row)
    return dict(sorted(rows.items()))


def _nested(groups: Mapping[tuple[str, ...], Estimate]) -> Estimate:
    """Mean over the first labels of the mean over the second labels, and so on."""
    while len(next(iter(groups))) > 1:
        parents: dict[tuple[str, ...], list[Estimate]] = {}
        for path, estimate in groups.items():
            parents.setdefault(path[:-1], []).append(estimate)
        groups = {path: stats.macro(children) for path, children in parents.items()}
    return stats.macro(list(groups.values()))


def shared_labels(labels: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Labels that all rows share."""
    first, *others = labels
    return {
        kind: label for kind, label in first.items() if all(o.get(kind) == label for o in others)
    }

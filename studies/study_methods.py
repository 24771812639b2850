"""Part f: the methods, each against its control, with the right images and with permuted ones."""

from collections.abc import Callable
from typing import Any

from studies import study_columns, study_results
from studies.study_columns import COLUMNS, CONTROLS, Column
from studies.study_results import RECORD, MissingValueError, Results, Value
from vlc_jax.report import paper
from vlc_jax.report.to_markdown import markdown_table

ATTRIBUTES, NEGATION, RETRIEVAL = (
    COLUMNS[title] for title in ("attribute swap", "negation", "R@1 image→text")
)
PERMUTED = "_permuted"  # suffix of the runs with permuted images
BALANCED = "_balanced_52"  # and of those with balanced negatives
NONE = "–"


def table(results: Results) -> str:
    """Markdown table, a row per method of study_columns.OF_TABLE that has values.

    gain: over the control. grounded: the gain without the same gain with permuted images; not of
    negation, where the control with permuted images goes up from far below chance to chance.
    balanced: the gain with balanced negatives. R@1: against the run that the method starts from.
    ms: of a training step alone on the machine. A row is of one device, which it names if it
    is not that of most rows; its time can be of another.
    """
    rows, devices = [], []
    for run in study_columns.OF_TABLE:
        control, base = CONTROLS[run]
        if not all(map(results.has, (run, control, base))):
            continue
        # the device of the blind run, as far as it trained the others, too
        with results.beside(run + PERMUTED if results.has(run + PERMUTED) else run):
            balanced = run + BALANCED
            cells = [
                _or_none(_difference, results, run, control, ATTRIBUTES),
                _or_none(_grounded, results, run, control, base),
                _or_none(_difference, results, balanced, control, ATTRIBUTES, beside=balanced),
                _or_none(_difference, results, run, control, NEGATION),
                _or_none(_difference, results, run, base, RETRIEVAL),
                _cost(results, run, "" if control in (base, "clip_ft") else control),
            ]
            rows.append([*results.titles([run]), *cells])
            devices.append(results.device(run))
    usual = max(sorted({*devices}), key=devices.count, default="")
    for row, device in zip(rows, devices, strict=True):
        row[0] += f", {device}" if device != usual else ""
    header = [
        "method", "attributes: gain", "grounded", "balanced", "negation: gain", "R@1 − before",
        f"ms per step (control; CLIP-FT {_cost(results, 'clip_ft', '')})",
    ]  # fmt: skip
    return markdown_table(header, rows, len(header))


def _or_none(difference: Callable[..., Value], *arguments: Any, **options: Any) -> str:
    try:
        return study_results.signed(difference(*arguments, **options))
    except MissingValueError:
        return NONE


def _difference(results: Results, run: str, other: str, of: Column, beside: str = "") -> Value:
    with results.beside(beside):
        return results.difference(run, other, of.benchmark, of.metric)


def _grounded(results: Results, run: str, control: str, base: str) -> Value:
    """The gain on attributes less that with permuted images, seed by seed; only of one device."""
    # a base that is not trained further is its own blind control
    blind = control if control == base else control + PERMUTED
    runs = (run, control, run + PERMUTED, blind)
    if len({*map(results.device, runs)}) > 1:
        raise MissingValueError(f"{run} and its controls are of several devices")
    swaps = (results.by_seed(each, ATTRIBUTES.benchmark, ATTRIBUTES.metric) for each in runs)
    values = [(a - b) - (c - d) for a, b, c, d in zip(*swaps, strict=True)]
    return Value(*paper.over_seeds(values))


def _cost(results: Results, run: str, control: str) -> str:
    """Milliseconds of a step of the run and, in parentheses, of `control`, "": none.

    Of the row's device, or else of another one, which is then named.
    """
    own, run_ms = results.device(run), _milliseconds(results, run)
    device = min(run_ms, key=lambda each: (each != own, each), default=None)
    if device is None:
        return NONE
    control_ms = _milliseconds(results, control).get(device)
    cost = f"{run_ms[device]:.0f}" + (f" ({control_ms:.0f})" if control_ms else "")
    return cost if device == own else f"{cost}, {device}"


def _milliseconds(results: Results, run: str) -> dict[str, float]:
    """Device -> milliseconds of a step, the mean of the seeds that have it."""
    times: dict[str, list[float]] = {}
    for seed in range(study_columns.seeds_of(run, results.seeds)):
        for device, kept in results.by_device(f"{run}-{seed}").items():
            if step := kept.metrics.get(RECORD, {}).get("step_ms"):
                times.setdefault(device, []).append(step.value)
    return {device: sum(each) / len(each) for device, each in times.items()}

"""Part f: the newer methods, each against its control, with the right images and with permuted
ones."""

from collections.abc import Sequence

from studies import study_columns, study_results
from studies.study_columns import Column
from studies.study_results import Results
from vlc_jax.report.table import markdown_table

ATTRIBUTES, NEGATION, RETRIEVAL = (
    study_columns.HEADS[0],
    study_columns.HEADS[2],
    study_columns.BAG_OF_WORDS[0],
)
PERMUTED = "_permuted"  # suffix of the runs with permuted images
NONE = "–"


def table(results: Results) -> str:
    """Markdown table, a row per method of study_columns.METHODS that has values.

    gain: over the control. grounded: the gain without the same gain with permuted images; not of
    negation, where the control with permuted images goes up from far below chance to chance. R@1:
    against the run that the method starts from. ms: of a training step (studies/step_times.py). A
    row is of one device, which it names if the rows have several.
    """
    rows, devices = [], []
    for run, (control, base) in study_columns.METHODS.items():
        if not (results.has(run) and results.has(control) and results.has(base)):
            continue
        # the device of the blind run, as far as it trained the others, too
        with results.beside(run + PERMUTED if results.has(run + PERMUTED) else run):
            gain, negation, forgotten = (
                _difference(results, run, *pair)
                for pair in ((control, ATTRIBUTES), (control, NEGATION), (base, RETRIEVAL))
            )
            cost = _milliseconds(results, run)
            of_control = NONE if control == base else _milliseconds(results, control)
            cost += f" ({of_control})" if NONE not in (cost, of_control) else ""
            # a base that is not trained further is its own blind control
            blind = control if control == base else control + PERMUTED
            grounded = _grounded(results, (run, control, run + PERMUTED, blind), ATTRIBUTES)
            rows.append([results.title(run), gain, grounded, negation, forgotten, cost])
            devices.append(results.device(run))
    if len({*devices}) > 1:
        rows = [
            [f"{name}, {device}", *cells]
            for (name, *cells), device in zip(rows, devices, strict=True)
        ]
    header = [
        "method", "attributes: gain", "grounded", "negation: gain", "R@1 − before",
        "ms per step (control)",
    ]  # fmt: skip
    return markdown_table(header, rows, len(header))


def _difference(results: Results, run: str, other: str, column: Column) -> str:
    if not results.has(run, column.benchmark, column.metric):
        return NONE
    return study_results.signed(results.difference(run, other, column.benchmark, column.metric))


def _grounded(results: Results, runs: Sequence[str], column: Column) -> str:
    """The gain less that with permuted images, seed by seed; only of one device.

    runs: the method and its control, and the same with permuted images.
    """
    if not all(map(results.has, runs)) or len({*map(results.device, runs)}) > 1:
        return NONE
    method, without, blind, blind_without = (
        results.by_seed(each, column.benchmark, column.metric) for each in runs
    )
    values: Sequence[float] = [
        (a - b) - (c - d) for a, b, c, d in zip(method, without, blind, blind_without, strict=True)
    ]
    return study_results.signed(study_results.over_seeds(values))


def _milliseconds(results: Results, run: str) -> str:
    records = [results.record(f"{run}-{seed}") for seed in range(results.seeds_of(run))]
    times = [record["step_ms"] for record in records if "step_ms" in record]
    return f"{sum(times) / len(times):.0f}" if times else NONE

"""Part f: the newer methods, each against its control, with the right images and with permuted
ones."""

from collections.abc import Sequence

from studies import study_columns, study_results
from studies.study_columns import Column
from studies.study_results import Results
from vlc_jax.report.to_markdown import markdown_table

ATTRIBUTES, NEGATION, RETRIEVAL = (
    study_columns.HEADS[0],
    study_columns.HEADS[2],
    study_columns.BAG_OF_WORDS[0],
)
PERMUTED = "_permuted"  # suffix of the runs with permuted images
BALANCED = "_balanced_52"  # and of those with balanced negatives
NONE = "–"


def table(results: Results) -> str:
    """Markdown table, a row per method of study_columns.METHODS that has values.

    gain: over the control. grounded: the gain without the same gain with permuted images; not of
    negation, where the control with permuted images goes up from far below chance to chance.
    balanced: the gain with balanced negatives. R@1: against the run that the method starts from.
    ms: of a training step (studies/step_times.py). A row is of one device, which it names if the
    rows have several; its time can be of another.
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
            # a base that is not trained further is its own blind control
            blind = control if control == base else control + PERMUTED
            grounded = _grounded(results, (run, control, run + PERMUTED, blind), ATTRIBUTES)
            cost = _cost(results, run, "" if control == base else control)
            balanced = _balanced(results, run, control)
            rows.append([results.title(run), gain, grounded, balanced, negation, forgotten, cost])
            devices.append(results.device(run))
    if len({*devices}) > 1:
        rows = [
            [f"{name}, {device}", *cells]
            for (name, *cells), device in zip(rows, devices, strict=True)
        ]
    header = [
        "method", "attributes: gain", "grounded", "balanced", "negation: gain", "R@1 − before",
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


def _balanced(results: Results, run: str, control: str) -> str:
    """The gain on attributes with balanced negatives."""
    if not results.has(run + BALANCED):
        return NONE
    with results.beside(run + BALANCED):
        return _difference(results, run + BALANCED, control, ATTRIBUTES)


def _cost(results: Results, run: str, control: str) -> str:
    """Milliseconds of a step of the run and, in parentheses, of its control, "": none.

    Of the row's device, or else of another one, which is then named.
    """
    own, of_run = results.device(run), _milliseconds(results, run)
    device = own if own in of_run else next(iter(sorted(of_run)), "")
    if device not in of_run:
        return NONE
    of_control = _milliseconds(results, control).get(device) if control else None
    cost = f"{of_run[device]:.0f}" + (f" ({of_control:.0f})" if of_control else "")
    return cost if device == own else f"{cost}, {device}"


def _milliseconds(results: Results, run: str) -> dict[str, float]:
    """Device -> milliseconds of a step, the mean of the seeds that have it."""
    times: dict[str, list[float]] = {}
    for seed in range(results.seeds_of(run)):
        for device, record in results.by_device(f"{run}-{seed}").items():
            times.setdefault(device, []).extend([record["step_ms"]] if "step_ms" in record else [])
    return {device: sum(each) / len(each) for device, each in times.items() if each}

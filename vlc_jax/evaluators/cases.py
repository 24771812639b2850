"""Cases of a benchmark in evaluators: their check, their parts, and their rows in the results."""

from collections.abc import Callable, Sequence
from typing import Any

from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

WRONG_PER_ROW = 5  # wrong options in a per-example row, best first


def check_cases(benchmark: Benchmark, rule: str, fits: Callable[[Case], object]) -> None:
    """Raises DataError with the rule for a benchmark without cases, and for a case that does not
    fit."""
    if not benchmark.cases:
        raise DataError(f"benchmark {benchmark.name!r} has no cases")
    for case in benchmark.cases:
        if not fits(case):
            raise DataError(
                f"{rule}; case {case.id!r} of {benchmark.name!r} has {len(case.images)} images and "
                f"{len(case.captions)} captions, group {case.group!r:.80}, meta {case.meta!r:.200}"
            )


def chunked(items: Any, size: int) -> list[Any]:
    """Cases, or other items, in parts of `size`; the last one may be smaller."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def image_name(case: Case) -> str:
    """Name of a case's image, which other cases may share."""
    return case.meta.get("record", case.id)


def row(
    case: Case,
    captions: Sequence[str],
    scores: Sequence[Any],
    correct: object,
    tie: object,
    **further: Any,
) -> dict[str, Any]:
    """Row of `EvalResult.per_example`, ready for JSON; `further` fields of a protocol may replace
    those of the case."""
    return {
        "id": case.id,
        "group": case.group,
        "captions": list(captions),
        "scores": list(scores),
        "correct": bool(correct),
        "tie": bool(tie),
        **further,
    }

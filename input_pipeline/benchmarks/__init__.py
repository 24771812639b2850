"""Benchmarks as cases. Name -> reader; a reader takes split, count and options of its own."""

from collections.abc import Callable

from input_pipeline.benchmarks import scenes, sources
from input_pipeline.benchmarks.case import Benchmark, Case

__all__ = ["READERS", "Benchmark", "Case"]

READERS: dict[str, Callable[..., Benchmark]] = {
    "retrieval": sources.retrieval,
    "zeroshot": sources.zeroshot,
    **scenes.READERS,
}

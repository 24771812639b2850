"""Readers of evaluation sets: name -> function that returns a `Benchmark`, a list of cases.

A reader takes split, count and options of its own. Its protocol has the same name in
`vlc_jax.evaluators.EVALUATIONS`.
"""

import inspect
from collections.abc import Callable

from input_pipeline.benchmarks import from_hard_texts, from_source, scenes
from input_pipeline.benchmarks.case import Benchmark, Case

__all__ = ["READERS", "Benchmark", "Case", "reads_source"]

READERS: dict[str, Callable[..., Benchmark]] = {
    "retrieval": from_source.retrieval,
    "zeroshot": from_source.zeroshot,
    **from_hard_texts.READERS,
    **scenes.READERS,
}


def reads_source(name: str) -> bool:
    """True if a benchmark is made of a training-style source, which its option `source` names."""
    return "source" in inspect.signature(READERS[name]).parameters

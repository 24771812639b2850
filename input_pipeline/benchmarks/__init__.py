"""Table of readers of evaluation sets: name -> function that returns a `Benchmark` (cases).

A reader takes split, count and options of its own. `PROTOCOL_OF` names its evaluation protocol. A
benchmark of config.evals is named after its reader, unless its option `reader` says otherwise.
"""

import inspect
from collections.abc import Callable
from typing import Any

from vlc_jax import errors
from vlc_jax.input_pipeline.benchmarks import (  # noqa: F401
    aro,
    bivlc,
    bla,
    ccneg,
    clevr_bind,
    coco_counterfactuals,
    cola,
    colorfoil,
    colorswap,
    crepe,
    eqben,
    from_hard_texts,
    from_source,
    half_truths,
    hard_positives,
    imagecode,
    karpathy,
    long_captions,
    mmvp,
    naturalbench,
    ncd_squares,
    negbench,
    negrefcocog,
    pope,
    published,
    reporting_bias,
    scene_cases,
    scene_geometry,
    spatial,
    spec,
    sugarcrepe,
    svo_probes,
    valse,
    vismin,
    vl_checklist,
    vsr,
    whatsup,
    winoground,
)
from vlc_jax.input_pipeline.benchmarks.published import Origin
from vlc_jax.input_pipeline.case import Average, Benchmark, Case

__all__ = [
    "PROTOCOL_OF",
    "PUBLISHED",
    "READERS",
    "Average",
    "Benchmark",
    "Case",
    "protocol_of",
    "reads_source",
]

# Published evaluation sets, which their modules register; each reader is named like its set.
PUBLISHED: dict[str, tuple[Callable[..., Benchmark], Origin]] = dict(published.SETS)

_OTHERS: dict[str, tuple[Callable[..., Benchmark], str]] = {  # name -> (reader, protocol)
    **from_source.READERS,
    **from_hard_texts.READERS,
    **scene_cases.READERS,
    **scene_geometry.READERS,
}

PROTOCOL_OF: dict[str, str] = {  # reader -> its protocol, a key of vlc_jax.evaluators.PROTOCOLS
    **{name: protocol for name, (_, protocol) in _OTHERS.items()},
    **{name: origin.protocol for name, (_, origin) in PUBLISHED.items()},
}


def _row(name: str, value: Any) -> Callable[..., Benchmark]:
    """The reader of another project's pair."""
    PROTOCOL_OF[name] = value[1]
    return value[0]


READERS = errors.Table(
    "BENCHMARKS",
    {name: reader for name, (reader, _) in (_OTHERS | PUBLISHED).items()},
    "a pair (function, name of its protocol)",
    lambda x: isinstance(x, tuple) and len(x) == 2 and callable(x[0]),
    _row,
)


def protocol_of(name: str) -> str:
    """Protocol of a reader. Raises UsageError naming the nearest reader for an unknown name."""
    return PROTOCOL_OF.get(errors.known("benchmark", name, READERS), "")


def reads_source(name: str) -> bool:
    """True if the benchmark reads a training source, chosen by its option `source`."""
    return "source" in inspect.signature(READERS[name]).parameters

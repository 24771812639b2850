"""Table of readers of evaluation sets: name -> function that returns a `Benchmark` (cases).

A reader takes split, count and options of its own. `PROTOCOL_OF` names its evaluation protocol. A
benchmark of config.evals is named after its reader, unless its option `reader` says otherwise.
"""

import inspect
from collections.abc import Callable

from vlc_jax import errors
from vlc_jax.input_pipeline.benchmarks import (
    aro,
    bivlc,
    bla,
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
    mmvp,
    naturalbench,
    ncd_squares,
    negbench,
    scene_geometry,
    scenes,
    spatial,
    spec,
    sugarcrepe,
    sugarcrepe_pp,
    svo_probes,
    valse,
    vismin,
    vl_checklist,
    whatsup,
    winoground,
)
from vlc_jax.input_pipeline.benchmarks.published_files import Origin
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

PUBLISHED: dict[str, tuple[Callable[..., Benchmark], Origin]] = {  # published evaluation sets
    **aro.READERS,
    **bivlc.READERS,
    **bla.READERS,
    **clevr_bind.READERS,
    **coco_counterfactuals.READERS,
    **cola.READERS,
    **colorfoil.READERS,
    **colorswap.READERS,
    **crepe.READERS,
    **eqben.READERS,
    **half_truths.READERS,
    **hard_positives.READERS,
    **imagecode.READERS,
    **karpathy.READERS,
    **mmvp.READERS,
    **naturalbench.READERS,
    **ncd_squares.READERS,
    **negbench.READERS,
    **spatial.READERS,
    **spec.READERS,
    **sugarcrepe.READERS,
    **sugarcrepe_pp.READERS,
    **svo_probes.READERS,
    **valse.READERS,
    **vismin.READERS,
    **vl_checklist.READERS,
    **whatsup.READERS,
    **winoground.READERS,
}

_OTHERS: dict[str, tuple[Callable[..., Benchmark], str]] = {  # name -> (reader, protocol)
    **from_source.READERS,
    **from_hard_texts.READERS,
    **scenes.READERS,
    **scene_geometry.READERS,
}

READERS: dict[str, Callable[..., Benchmark]] = {
    name: reader for name, (reader, _) in (_OTHERS | PUBLISHED).items()
}
PROTOCOL_OF: dict[str, str] = {  # reader -> its protocol, a key of vlc_jax.evaluators.PROTOCOLS
    **{name: protocol for name, (_, protocol) in _OTHERS.items()},
    **{name: origin.protocol for name, (_, origin) in PUBLISHED.items()},
}


def protocol_of(name: str) -> str:
    """Protocol of a reader. Raises UsageError naming the nearest reader for an unknown name."""
    return PROTOCOL_OF[errors.known("benchmark", name, PROTOCOL_OF)]


def reads_source(name: str) -> bool:
    """True if the benchmark reads a training source, chosen by its option `source`."""
    return "source" in inspect.signature(READERS[name]).parameters

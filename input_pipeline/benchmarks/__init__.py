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
    reporting_bias,
    scene_geometry,
    scenes,
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
from vlc_jax.input_pipeline.benchmarks.published import Origin, origin_of
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

# Readers of published evaluation sets, each named like its set.
_PUBLISHED: tuple[Callable[..., Benchmark], ...] = (
    aro.vg_relation,
    aro.vg_attribution,
    aro.coco_order,
    aro.flickr30k_order,
    bivlc.bivlc,
    bla.bla,
    ccneg.ccneg,
    clevr_bind.clevr_bind,
    coco_counterfactuals.coco_counterfactuals,
    cola.cola,
    colorfoil.colorfoil,
    colorswap.colorswap,
    crepe.crepe_systematicity,
    crepe.crepe_productivity,
    eqben.eqben,
    eqben.eqben_subset,
    eqben.eqben_full,
    half_truths.half_truths,
    hard_positives.replace,
    hard_positives.swap,
    imagecode.imagecode,
    karpathy.coco_retrieval,
    karpathy.flickr30k_retrieval,
    long_captions.docci,
    long_captions.urban1k,
    mmvp.mmvp,
    mmvp.mmvp_vlm,
    naturalbench.naturalbench_retrieval,
    ncd_squares.ncd_squares,
    negbench.negbench,
    negbench.negbench_retrieval,
    negrefcocog.negrefcocog,
    pope.pope,
    reporting_bias.reporting_bias,
    spatial.coco_spatial_one,
    spatial.coco_spatial_two,
    spatial.gqa_spatial_one,
    spatial.gqa_spatial_two,
    spec.spec,
    sugarcrepe.sugarcrepe,
    sugarcrepe.sugarcrepe_pp,
    svo_probes.svo_probes,
    valse.valse,
    vismin.vismin,
    vl_checklist.vl_checklist,
    vsr.vsr,
    whatsup.whatsup_a,
    whatsup.whatsup_b,
    whatsup.whatsup_a_two_way,
    whatsup.whatsup_b_two_way,
    winoground.winoground,
)
PUBLISHED: dict[str, tuple[Callable[..., Benchmark], Origin]] = {
    reader.__name__: (reader, origin_of(reader)) for reader in _PUBLISHED
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

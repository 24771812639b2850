"""Table of readers of evaluation sets: name -> function that returns a `Benchmark` (cases).

`vlc_jax.evaluators.EVALUATIONS` maps the same names to their protocols.
"""

import inspect
from collections.abc import Callable

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
from vlc_jax.input_pipeline.benchmarks.shuffled import with_shuffles
from vlc_jax.input_pipeline.case import Average, Benchmark, Case

__all__ = ["PUBLISHED", "READERS", "Average", "Benchmark", "Case", "reads_source"]

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

READERS: dict[str, Callable[..., Benchmark]] = {
    "retrieval": with_shuffles(from_source.retrieval),
    "zeroshot": from_source.zeroshot,
    "linear_probe": from_source.linear_probe,
    **from_hard_texts.READERS,
    **scenes.READERS,
    **scene_geometry.READERS,
    **{name: reader for name, (reader, _) in PUBLISHED.items()},
}


def reads_source(name: str) -> bool:
    """True if the benchmark reads a training source, chosen by its option `source`."""
    return "source" in inspect.signature(READERS[name]).parameters

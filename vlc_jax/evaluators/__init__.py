"""Evaluation protocols, and the table of benchmarks: reader -> protocol.

A reader has the same name in `READERS` of input_pipeline/benchmarks. A benchmark of config.evals is
named after its reader, unless its option `reader` says otherwise.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from vlc_jax import errors
from vlc_jax.evaluators import (
    binding,
    choice,
    conditions,
    keywords,
    linear_probe,
    multiple_choice,
    pairs,
    retrieval,
    superposition,
    ties,
    triplet,
    vqascore,
    zeroshot,
)
from vlc_jax.evaluators.scorer import Abilities, Decoding, Scorer
from vlc_jax.evaluators.stats import Estimate, EvalResult
from vlc_jax.input_pipeline.benchmarks import PUBLISHED, Benchmark

__all__ = [
    "EVALUATIONS",
    "PROTOCOLS",
    "Abilities",
    "Decoding",
    "Estimate",
    "EvalResult",
    "Scorer",
    "check",
    "evaluate",
    "headline",
    "protocol",
    "protocol_options",
    "summary",
    "to_json",
]

PROTOCOLS: dict[str, Callable[..., EvalResult]] = {
    "binding": binding.evaluate,
    "choice": choice.evaluate,
    "conditions": conditions.evaluate,
    "keywords": keywords.evaluate,
    "linear_probe": linear_probe.evaluate,
    "multiple_choice": multiple_choice.evaluate,
    "pairs": pairs.evaluate,
    "retrieval": retrieval.evaluate,
    "superposition": superposition.evaluate,
    "triplet": triplet.evaluate,
    "zeroshot": zeroshot.evaluate,
}

# Protocols with a `check` of their own; all others have the tie policy alone.
CHECKED = {"keywords": keywords, "multiple_choice": multiple_choice, "retrieval": retrieval}
# Of models that answer questions: the option `protocol` of a benchmark names one of these in place
# of its reader's.
ASKING = ("keywords", "multiple_choice")
# Options of every benchmark: the protocol, and fields of vqascore.asking, which asks about captions
# in any protocol that scores them.
OPTIONS = ("protocol", "vqascore")

EVALUATIONS: dict[str, str] = {  # reader -> protocol
    "retrieval": "retrieval",
    "zeroshot": "zeroshot",
    "linear_probe": "linear_probe",
    "choice": "choice",
    "triplet": "triplet",
    "pairs": "pairs",
    "scenes_retrieval": "retrieval",
    "scenes_held_retrieval": "retrieval",
    "scenes_zero_shot_objects": "zeroshot",
    "scenes_zero_shot_colours": "zeroshot",
    "scenes_objects": "choice",
    "scenes_attributes": "choice",
    "scenes_attribute_swap": "choice",
    "scenes_relation_swap": "choice",
    "scenes_order": "choice",
    "scenes_replace": "triplet",
    "scenes_replace_unseen": "triplet",
    "scenes_swap": "triplet",
    "scenes_swap_relation": "triplet",
    "scenes_held_attribute_swap": "choice",
    "scenes_held_relation_swap": "choice",
    "scenes_negation": "choice",
    "scenes_whatsup": "pairs",
    "scenes_spatial": "choice",
    "scenes_conditions": "conditions",
    "scenes_superposition": "superposition",
    "scenes_binding": "binding",
    **{name: origin.protocol for name, (_, origin) in PUBLISHED.items()},
}

SUMMARIES: dict[str, tuple[str, ...]] = {  # protocol -> metrics of a table; the first leads
    "choice": (
        "accuracy",
        *("text_mean_accuracy", "image_mean_accuracy", "map_accuracy"),  # if asked for
    ),
    "pairs": (
        *("pair_accuracy", "individual_accuracy", "group_score"),
        *("image_cosine", "agreement", "erroneous_agreement", "margin_correlation"),  # if asked for
    ),
    "retrieval": ("image_to_text_r1", "image_to_text_r5", "text_to_image_r1", "text_to_image_r5"),
    "triplet": ("augmented_accuracy", "original_accuracy", "brittleness"),
    "linear_probe": ("accuracy", "mean_per_class_recall"),
    "keywords": ("accuracy", "unparsed"),
    "multiple_choice": (
        *("pair_accuracy", "individual_accuracy", "relaxed_pair", "relaxed_pair_literal"),
        "unparsed",
    ),
    "conditions": ("satisfied",),
    "superposition": ("superposition", "binding_visible"),
    "binding": ("probe_accuracy", "score_accuracy"),
    "zeroshot": ("accuracy", "accuracy_top5", "mean_per_class_recall"),
}


def protocol(reader: str, chosen: str = "") -> str:
    """The name of a benchmark's protocol, or of the `chosen` one in its place.

    Raises UsageError naming the nearest known benchmark, or the protocols to choose from.
    """
    own = EVALUATIONS[errors.known("benchmark", reader, EVALUATIONS)]
    return errors.known(f"protocol of {reader!r}", chosen, (own, *ASKING)) if chosen else own


def evaluate(reader: str, benchmark: Benchmark, scorer: Scorer, **options: Any) -> EvalResult:
    """Evaluates `scorer` on a benchmark by its protocol, or the one that `options` choose, with
    the protocol's options.

    Raises:
      UsageError: an unknown benchmark or option. DataError: cases that do not fit the protocol.
      DivergedError: scores that are not finite.
    """
    chosen = options.pop("protocol", "")
    known = protocol_options(reader, chosen)
    for option in options:
        errors.known(f"option of benchmark {reader!r}", option, known)
    check(reader, {"protocol": chosen, **options}, scorer.abilities)
    asked = options.pop("vqascore", None)
    if asked is not None:
        scorer = vqascore.asking(scorer, **asked)
    result = PROTOCOLS[protocol(reader, chosen)](benchmark, scorer, **options)
    if scorer.prompt and "prompt" not in result.details:
        result.details["prompt"] = dict(scorer.prompt)
    return result


def check(reader: str, options: Mapping[str, Any], abilities: Abilities | None = None) -> None:
    """Raises UsageError for values of a protocol's options that need no benchmark to be refused,
    and for a protocol that asks for what a model cannot do.

    options: of a benchmark in config.evals; those of its reader are left alone.
    abilities: of the model; None: not known yet.
    """
    chosen, asked = options.get("protocol", ""), options.get("vqascore")
    name = protocol(reader, chosen)
    own = {**_defaults(name), **options}
    if name in CHECKED:
        CHECKED[name].check(**own)
    elif "tie" in own:
        ties.check(own["tie"])
    if asked is not None:
        if name in ASKING:
            raise errors.UsageError(f"protocol {name!r} has questions of its own: no vqascore")
        vqascore.check(asked)
    if abilities is not None and (asked is not None or name in ASKING):
        abilities.require("scores_answers" if asked is not None else CHECKED[name].needs(**own))


def _defaults(name: str) -> dict[str, Any]:
    """Options of a protocol, with their default values."""
    parameters = inspect.signature(PROTOCOLS[name]).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def protocol_options(reader: str, chosen: str = "") -> tuple[str, ...]:
    """Options of a benchmark's protocol; all others are its reader's."""
    return (*_defaults(protocol(reader, chosen)), *OPTIONS)


def summary(reader: str, chosen: str = "") -> tuple[str, ...]:
    """Metrics of a benchmark in result tables, the headline first."""
    return SUMMARIES[protocol(reader, chosen)]


def to_json(
    reader: str, benchmark: Benchmark, result: EvalResult, /, *, chosen: str = "", **facts: Any
) -> dict[str, Any]:
    """Content of evals/<name>/<step>.json: `result` without its per-example rows, and facts.

    chosen: the protocol, where it is not the reader's.
    """
    shown = (*SUMMARIES[protocol(reader, chosen)], *benchmark.summary)
    if not chosen:
        shown = benchmark.summary or summary(reader)
    return {
        "benchmark": reader,
        "reader": reader,
        "protocol": protocol(reader, chosen),
        "version": benchmark.version,
        **facts,
        "notes": list(benchmark.notes),
        "summary": [metric for metric in dict.fromkeys(shown) if metric in result.metrics],
        "metrics": {metric: e._asdict() for metric, e in result.metrics.items()},
        "details": result.details,
    }

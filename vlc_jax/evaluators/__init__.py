"""Evaluation protocols: one literal table, and `evaluate`, which runs one of them on a benchmark.

The protocol of each reader of a benchmark is in `PROTOCOL_OF` of input_pipeline/benchmarks.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from vlc_jax import errors
from vlc_jax.evaluators import (
    binding,
    choice,
    conditions,
    keywords,
    linear_probe,
    multilabel,
    multiple_choice,
    negation,
    pairs,
    retrieval,
    stats,
    superposition,
    ties,
    triplet,
    vqascore,
    zeroshot,
)
from vlc_jax.evaluators.scorer import Abilities, Ability, Decoding, Scorer, in_segments, segments
from vlc_jax.evaluators.stats import Estimate, EvalResult
from vlc_jax.input_pipeline import lookup
from vlc_jax.input_pipeline.case import Benchmark

__all__ = [
    "ASKING",
    "PROTOCOLS",
    "Abilities",
    "Decoding",
    "Estimate",
    "EvalResult",
    "Protocol",
    "Scorer",
    "check",
    "evaluate",
    "protocol",
    "protocol_options",
    "to_json",
]


def _check_tie(*, tie: str, **others: Any) -> None:
    del others
    ties.check(tie)


class Protocol(NamedTuple):
    """A row of `PROTOCOLS`: how a benchmark is evaluated, and how the report shows its results.

    evaluate: (benchmark, scorer) -> EvalResult. Its keyword-only parameters are the protocol's
      options in config.evals.NAME.
    summary: metrics of result tables, the headline first; optional ones only if a result has them.
    check: raises UsageError for invalid values of the options, all of which it gets.
    needs: options -> the ability that a model must have, for protocols that ask it questions;
      None: image-text scores are enough.
    embeds: options -> whether the protocol reads embeddings, and not only scores; None: never.
    vector_files: options that are paths of stored vectors in configs, and functions of names in
      `evaluate` (input_pipeline/tokenizers/text_vectors.py).

    The rest is written into each result (`to_json`) and read by vlc_jax/report/display.py:
    correct: label of the metric behind `correct` in <step>.scores.jsonl, for paired tests.
    by_group: whether runs are also compared group by group, in a figure of their own.
    """

    evaluate: Callable[..., EvalResult]
    summary: tuple[str, ...]
    correct: str
    by_group: bool = False
    check: Callable[..., None] = _check_tie
    needs: Callable[..., Ability] | None = None
    embeds: Callable[..., object] | None = None
    vector_files: tuple[str, ...] = ()

    @property
    def options(self) -> dict[str, Any]:
        """The protocol's options and their default values."""
        parameters = inspect.signature(self.evaluate).parameters.values()
        return {x.name: x.default for x in parameters if x.kind is x.KEYWORD_ONLY}


_OWN: dict[str, Protocol] = {  # in the order of result tables
    "retrieval": Protocol(
        retrieval.evaluate,
        summary=("image_to_text_r1", "image_to_text_r5", "text_to_image_r1", "text_to_image_r5"),
        correct="image→text R@1",
        check=retrieval.check,
    ),
    "zeroshot": Protocol(
        zeroshot.evaluate,
        summary=("accuracy", "accuracy_top5", "mean_per_class_recall"),
        correct="accuracy",
    ),
    "linear_probe": Protocol(
        linear_probe.evaluate,
        summary=("accuracy", "mean_per_class_recall"),
        correct="accuracy",
        embeds=lambda **_: True,
    ),
    "choice": Protocol(
        choice.evaluate,
        # the last three with the option tokens
        summary=("accuracy", "text_mean_accuracy", "image_mean_accuracy", "map_accuracy"),
        correct="accuracy",
        embeds=lambda *, tokens, geometry, **_: tokens or geometry,
    ),
    "triplet": Protocol(
        triplet.evaluate,
        summary=("augmented_accuracy", "original_accuracy", "brittleness"),
        correct="augmented",
        by_group=True,
    ),
    "pairs": Protocol(
        pairs.evaluate,
        summary=(
            "pair_accuracy",
            "individual_accuracy",
            "group_score",
            # with the options geometry and second_features
            "image_cosine",
            "agreement",
            "agreeing_accuracy",
            "erroneous_agreement",
            "margin_correlation",
        ),
        correct="pair",
        embeds=lambda *, geometry, second_features, **_: geometry or second_features,
        vector_files=("second_features",),
    ),
    "keywords": Protocol(
        keywords.evaluate,
        summary=("accuracy", "unparsed"),
        correct="accuracy",
        check=keywords.check,
        needs=keywords.needs,
    ),
    "multiple_choice": Protocol(
        multiple_choice.evaluate,
        summary=(
            "pair_accuracy",
            "individual_accuracy",
            "relaxed_pair",
            "relaxed_pair_literal",
            "unparsed",
        ),
        correct="pair",
        check=multiple_choice.check,
        needs=multiple_choice.needs,
    ),
    "conditions": Protocol(
        conditions.evaluate, summary=("satisfied",), correct="satisfied", embeds=lambda **_: True
    ),
    "superposition": Protocol(
        superposition.evaluate,
        summary=("superposition", "binding_visible"),
        correct="superposition",
        embeds=lambda **_: True,
    ),
    "binding": Protocol(
        binding.evaluate,
        summary=("probe_accuracy", "score_accuracy"),
        correct="score",
        embeds=lambda **_: True,
    ),
    "multilabel": Protocol(
        multilabel.evaluate,
        summary=("mean_average_precision", "mean_average_precision_11_points"),
        correct="best class",
    ),
}
PROTOCOLS = errors.Table(
    "PROTOCOLS", _OWN, "a vlc_jax.evaluators.Protocol", lambda x: isinstance(x, Protocol)
)

# Protocols that ask the model questions, and may take the place of a reader's own protocol: the
# option `protocol` of a benchmark names one of them.
ASKING = tuple(name for name, row in _OWN.items() if row.needs)
# Options of every benchmark: the protocol, the fields of vqascore.asking, which replaces the scores
# of captions in every other protocol, of negation.Negation, which corrects embeddings of texts, and
# of scorer.Segments, which scores by segments of texts.
OPTIONS = ("protocol", "vqascore", "negation", "segments")
# Prefix of a metric over the cases that a blind classifier of the texts does not get right.
GROUNDED = "grounded_"


def protocol(default: str, chosen: str = "") -> str:
    """The name of a benchmark's protocol: its reader's `default`, or `chosen` in its place, which
    asks questions or is of another project.

    Raises UsageError naming the nearest known protocol.
    """
    errors.known("protocol", default, PROTOCOLS)
    if "." in chosen:
        return errors.known("protocol", chosen, PROTOCOLS)
    choices = (default, *ASKING, *PROTOCOLS.packages)
    return errors.known("protocol", chosen, choices) if chosen else default


def evaluate(default: str, benchmark: Benchmark, scorer: Scorer, **options: Any) -> EvalResult:
    """Evaluates `scorer` on a benchmark.

    default: protocol of the benchmark's reader.
    options: of the protocol, with `Protocol.vector_files` opened, and `OPTIONS`; `protocol` names
      another one of `ASKING`.

    Raises:
      UsageError: an unknown protocol or option. DataError: cases that do not fit the protocol.
      DivergedError: scores that are not finite.
    """
    name = protocol(default, options.get("protocol", ""))
    for option in options:
        errors.known(f"option of protocol {name!r}", option, protocol_options(name))
    check(default, options, scorer.abilities)
    protocol_values = {key: value for key, value in options.items() if key not in OPTIONS}
    if options.get("vqascore") is not None:
        scorer = vqascore.asking(scorer, **options["vqascore"])
    if how := negation.options(options.get("negation")):
        scorer = negation.correcting(scorer, how)
    if parts := segments(options.get("segments")):
        scorer = in_segments(scorer, parts)
    result = PROTOCOLS[name].evaluate(benchmark, scorer, **protocol_values)
    # protocols that ask have put their own question there
    if scorer.prompt and "prompt" not in result.details:
        result.details["prompt"] = dict(scorer.prompt)
    return result


def check(default: str, options: Mapping[str, Any], abilities: Abilities | None = None) -> None:
    """Raises UsageError for invalid values of a protocol's options, whatever the benchmark, and for
    a protocol that needs an ability which the model lacks.

    default: protocol of the benchmark's reader.
    options: of a benchmark in config.evals; its reader's options are ignored.
    abilities: of the model; None: not known yet.
    """
    name = protocol(default, options.get("protocol", ""))
    row, vqascore_options = PROTOCOLS[name], options.get("vqascore")
    values = {**row.options, **options}
    with errors.usage_errors():
        lookup.check_types("protocol", name, row.evaluate, options)
    row.check(**values)
    if vqascore_options is not None:
        if row.needs:
            raise errors.UsageError(f"protocol {name!r} has questions of its own: no vqascore")
        vqascore.check(vqascore_options)
    chosen = {
        "negation": negation.options(options.get("negation")),
        "segments": segments(options.get("segments")),
    }
    cosines = [option for option, how in chosen.items() if how]
    if len(cosines) > 1:
        raise errors.UsageError("negation and segments change the same scores: leave one out")
    if cosines and row.needs:
        raise errors.UsageError(f"protocol {name!r} compares no embeddings: no {cosines[0]}")
    if abilities is None:
        return
    if vqascore_options is not None:
        abilities.require("scores_answers")
    elif row.needs:
        abilities.require(row.needs(**values))
    if cosines:
        abilities.require("is_cosine")
    if row.embeds and row.embeds(**values):
        abilities.require("embeds")


def protocol_options(default: str, chosen: str = "") -> tuple[str, ...]:
    """Names of the options of a benchmark's protocol; all others are its reader's."""
    return (*PROTOCOLS[protocol(default, chosen)].options, *OPTIONS)


def _with_grounded(metrics: Iterable[str], result: EvalResult) -> list[str]:
    """Metrics of tables, and after the first mean of each kind of decision its grounded form.

    Where the blind score is not above chance, the grounded form says no more and is left out.
    """
    listed: list[str] = []
    left = set(result.decisions)
    for metric in metrics:
        listed.append(metric)
        kind = next((name for name in left if metric in (name, f"{name}_macro")), None)
        blind = result.nulls.get(metric, {}).get("blind")
        if kind is None or blind is None:
            continue
        low, _ = stats.wilson(blind, result.metrics[metric].count)
        left.discard(kind)
        listed += [f"{GROUNDED}{metric}"] if low > result.metrics[metric].chance else []
    return listed


def to_json(
    default: str,
    benchmark: Benchmark,
    result: EvalResult,
    /,
    *,
    reader: str,
    chosen: str = "",
    **facts: Any,
) -> dict[str, Any]:
    """Content of evals/<name>/<step>.json: `result` without its per-example rows, and facts.

    default: protocol of the benchmark's reader.   chosen: the protocol in its place, if any.
    """
    name = protocol(default, chosen)
    row = PROTOCOLS[name]
    metrics = (*row.summary, *benchmark.summary) if chosen else benchmark.summary or row.summary
    metrics = _with_grounded(metrics, result)
    return {
        "benchmark": reader,
        "reader": reader,
        "protocol": name,
        "version": benchmark.version,
        **facts,
        "notes": list(benchmark.notes),
        "summary": [metric for metric in dict.fromkeys(metrics) if metric in result.metrics],
        "metrics": {
            metric: e._asdict() | result.nulls.get(metric, {})
            for metric, e in result.metrics.items()
        },
        "details": result.details,
        # of <step>.scores.jsonl, by which a truncated file is noticed
        "score_rows": len(result.per_example),
        "display": display(name),
    }


def display(protocol: str) -> dict[str, Any]:
    """Fields of `vlc_jax.report.display.Display` for results of a protocol."""
    row = PROTOCOLS[protocol]
    return {
        "order": list(PROTOCOLS).index(protocol),
        "correct": row.correct,
        "by_group": row.by_group,
        "asks": row.needs is not None,
    }

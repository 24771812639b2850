"""Scores that were computed elsewhere, a row per case, as a Scorer.

The scores of a case are its own: the same image and text may have other scores in another case.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from vlc_jax.errors import UsageError
from vlc_jax.evaluators.scorer import Scorer
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.types import ImageFeatures, TextFeatures

# Protocols whose decisions are within a case; others compare it with all.
OF_CASES = ("choice", "triplet", "pairs")
LISTED = 3  # cases that a message names


def texts_of(protocol: str, case: Case) -> tuple[str, ...]:
    """The texts that a protocol scores with each image of a case, in the order of their scores."""
    return (*case.captions, case.meta["positive"]) if protocol == "triplet" else case.captions


def scorer(
    protocol: str, benchmark: Benchmark, table: Mapping[str, Any]
) -> tuple[Benchmark, Scorer]:
    """(the benchmark with handles in place of images, the Scorer of these handles).

    table: id of a case -> its scores, one per text, image after image (a list, or a list per
      image), as `vlc-jax scores` writes them; or {"scores": ..., "captions": ...}, whose captions
      are compared with the case's.

    Raises:
      UsageError: a protocol that compares cases with each other.
      DataError: a case without scores, scores without a case, other captions, another number of
        scores, or one that is no finite number.
    """
    if protocol not in OF_CASES:
        raise UsageError(
            f"a table has the scores of single cases, for the protocols {', '.join(OF_CASES)}; "
            f"{benchmark.name!r} has the protocol {protocol!r}: evaluate a scorer"
        )
    _check_names(benchmark, table)
    scores = [_scores(protocol, case, table[case.id]) for case in benchmark.cases]
    options = [list(map(str, texts_of(protocol, case))) for case in benchmark.cases]
    texts: list[str] = []

    def embed_images(handles: Sequence[tuple[int, int]]) -> ImageFeatures:
        return ImageFeatures(np.zeros((len(handles), 0)), tokens=np.array(handles, np.int64))

    def embed_texts(strings: Sequence[str]) -> TextFeatures:
        start = len(texts)
        texts.extend(strings)
        numbers = np.arange(start, len(texts))
        return TextFeatures(np.zeros((len(strings), 0)), ids=numbers)

    def score_options(image: ImageFeatures, text: TextFeatures) -> np.ndarray:
        rows = text.ids.reshape(len(image.tokens), -1).tolist()
        # the first of two equal texts: they must tie
        return np.array(
            [
                [scores[case][k, options[case].index(texts[number])] for number in numbers]
                for (case, k), numbers in zip(image.tokens.tolist(), rows, strict=True)
            ]
        )

    def score(image: ImageFeatures, text: TextFeatures) -> np.ndarray:
        raise NotImplementedError("no protocol of OF_CASES scores all images with all texts")

    cases = tuple(
        dataclasses.replace(case, images=tuple((n, k) for k in range(len(case.images))))
        for n, case in enumerate(benchmark.cases)
    )
    handles = dataclasses.replace(benchmark, cases=cases)
    return handles, Scorer(embed_images, embed_texts, score, score_options, embeds=False)


def _check_names(benchmark: Benchmark, table: Mapping[str, Any]) -> None:
    names = dict.fromkeys(case.id for case in benchmark.cases)
    missing = [name for name in names if name not in table]
    extra = [name for name in table if name not in names]
    problems = []
    if missing:
        problems.append(f"{len(missing):,} of {len(names):,} have no scores: {_listed(missing)}")
    if extra:
        problems.append(f"{len(extra):,} are no cases: {_listed(extra)}")
    if problems:
        raise DataError(
            f"a table has the scores of every case of {benchmark.name!r}; {'; '.join(problems)}"
        )


def numbers(row: Any) -> Any:
    """The scores of a row of a table."""
    return row["scores"] if isinstance(row, Mapping) else row


def _scores(protocol: str, case: Case, row: Any) -> np.ndarray:
    """Scores (images, texts) of a case."""
    texts = texts_of(protocol, case)
    captions = row.get("captions") if isinstance(row, Mapping) else None
    if captions is not None and [*map(str, texts)] != [*map(str, captions)]:
        raise DataError(
            f"case {case.id!r} has the captions {[*texts]!r:.200}, the correct one first; the "
            f"table has {captions!r:.200}"
        )
    shape, row = (len(case.images), len(texts)), numbers(row)
    try:
        scores = np.asarray(row, np.float64)
    except (TypeError, ValueError):
        raise DataError(f"scores are numbers; case {case.id!r} has {row!r:.80}") from None
    if scores.size != shape[0] * shape[1]:
        raise DataError(
            f"case {case.id!r} has {shape[0]} images and {shape[1]} texts, so "
            f"{shape[0] * shape[1]} scores; got {scores.size}: {row!r:.80}"
        )
    if not np.isfinite(scores).all():
        raise DataError(f"scores are finite numbers; case {case.id!r} has {row!r:.80}")
    return scores.reshape(shape)


def _listed(names: Iterable[Any]) -> str:
    first = [*names]
    more = ", ..." if len(first) > LISTED else ""
    return ", ".join(repr(name) for name in first[:LISTED]) + more

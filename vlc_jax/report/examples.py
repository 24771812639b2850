"""Example cases of a benchmark for the report: images with scored captions."""

from pathlib import Path
from typing import NamedTuple

from vlc_jax.report.read_workdir import Example

PER_BENCHMARK = 4  # right and wrong cases mixed


class Option(NamedTuple):
    """One caption of an image. share: length of its score's bar, in [0, 1]."""

    caption: str
    score: float
    share: float
    is_correct: bool
    is_chosen: bool


class ScoredImage(NamedTuple):
    """One image of an example with its captions, best score first."""

    file: Path
    options: list[Option]
    is_right: bool


def choose(examples: list[Example]) -> list[Example]:
    """Up to PER_BENCHMARK examples, half of them wrong if there are enough of both."""
    right = [example for example in examples if example.row.get("correct") is True]
    wrong = [example for example in examples if example.row.get("correct") is not True]
    wrong_count = min(len(wrong), max(PER_BENCHMARK // 2, PER_BENCHMARK - len(right)))
    return right[: PER_BENCHMARK - wrong_count] + wrong[:wrong_count]


def show(examples: list[Example]) -> list[tuple[Example, list[ScoredImage]]]:
    """Examples with their images and scored captions; all bars share one scale."""
    scores = [score for example in examples for row in _by_image(example) for score in row]
    return [(example, _show(example, min(scores), max(scores))) for example in examples]


def _by_image(example: Example) -> list[list[float]]:
    scores = example.row["scores"]
    return scores if isinstance(scores[0], list) else [scores]


def _show(example: Example, low: float, high: float) -> list[ScoredImage]:
    """Images with scored captions; image k's own caption is k, with a triplet's hard positives."""
    images = []
    for k, (file, row) in enumerate(zip(example.images, _by_image(example), strict=False)):
        right = [k, *example.row.get("positives", ())]
        wrong = [i for i in range(len(row)) if i not in right]
        is_right = all(row[i] > row[j] for i in right for j in wrong)
        chosen = max([*wrong, *right], key=lambda i: row[i])  # a tie counts as an error
        options = [
            Option(
                caption=str(caption),
                score=score,
                # At least 4 %: a bar of length 0 looks like a missing score.
                share=0.04 + 0.96 * (score - low) / (high - low) if high > low else 0.5,
                is_correct=i in right,
                is_chosen=i == chosen,
            )
            for i, (caption, score) in enumerate(zip(example.row["captions"], row, strict=True))
        ]
        images.append(ScoredImage(file, sorted(options, key=lambda o: -o.score), is_right))
    return images

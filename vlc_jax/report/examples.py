"""Which cases of a benchmark the report shows, and what it says about them."""

from pathlib import Path
from typing import NamedTuple

from vlc_jax.report.read_workdir import Example

NUMBER = 4  # per benchmark, right and wrong ones mixed


class Option(NamedTuple):
    """One caption of an example: `share` of the bar's width, the model's choice or not."""

    caption: str
    score: float
    share: float
    is_correct: bool
    is_chosen: bool


class Shown(NamedTuple):
    """One image of an example with its captions, best score first."""

    file: Path
    options: list[Option]
    is_right: bool


def choose(examples: list[Example]) -> list[Example]:
    """Up to NUMBER of them, half of them wrong if there are enough of both."""
    right = [example for example in examples if example.row.get("correct") is True]
    wrong = [example for example in examples if example.row.get("correct") is not True]
    wrong_count = min(len(wrong), max(NUMBER // 2, NUMBER - len(right)))
    return right[: NUMBER - wrong_count] + wrong[:wrong_count]


def show(examples: list[Example]) -> list[tuple[Example, list[Shown]]]:
    """Each image of each example with its scored captions; the bars share one scale."""
    scores = [score for example in examples for row in _by_image(example) for score in row]
    return [(example, _show(example, min(scores), max(scores))) for example in examples]


def _by_image(example: Example) -> list[list[float]]:
    scores = example.row["scores"]
    return scores if isinstance(scores[0], list) else [scores]


def _show(example: Example, low: float, high: float) -> list[Shown]:
    """Caption k is right for image k, and so are the hard positives of a triplet."""
    shown = []
    for k, (file, row) in enumerate(zip(example.images, _by_image(example), strict=False)):
        right = [k, *example.row.get("positives", ())]
        wrong = [i for i in range(len(row)) if i not in right]
        is_right = all(row[i] > row[j] for i in right for j in wrong)
        chosen = max([*wrong, *right], key=lambda i: row[i])  # of equals a wrong one
        options = [
            Option(
                caption=str(caption),
                score=score,
                share=0.04 + 0.96 * (score - low) / (high - low) if high > low else 0.5,
                is_correct=i in right,
                is_chosen=i == chosen,
            )
            for i, (caption, score) in enumerate(zip(example.row["captions"], row, strict=True))
        ]
        shown.append(Shown(file, sorted(options, key=lambda o: -o.score), is_right))
    return shown

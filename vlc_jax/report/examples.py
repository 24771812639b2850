"""Example cases of a benchmark for the report: images with scored captions."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vlc_jax.report.read_workdir import Example, score_matrix

PER_BENCHMARK = 4  # right and wrong cases mixed


class Option(NamedTuple):
    """One caption of an image. share: length of its score's bar, in [0, 1]."""

    caption: str
    score: float
    share: float
    is_correct: bool
    is_chosen: bool


class ScoredImage(NamedTuple):
    """One image of an example with its captions, best score first.

    question, answer: prompt and generated text; "" for protocols without them.
    """

    file: Path
    options: list[Option]
    is_right: bool
    question: str = ""
    answer: str = ""


class Case(NamedTuple):
    """An example on a page. maps: the `plot.Picture` of its patch maps, if it has any."""

    name: str
    groups: Sequence[str]
    images: Sequence[ScoredImage]
    maps: Any = None

    @property
    def is_right(self) -> bool:
        """True if all of its images are right."""
        return all(image.is_right for image in self.images)


def choose(examples: list[Example]) -> list[Example]:
    """Up to PER_BENCHMARK examples, half of them wrong if there are enough of both."""
    right = [example for example in examples if example.row.get("correct") is True]
    # `is not True`: cases without the field count as wrong, so that they are seen
    wrong = [example for example in examples if example.row.get("correct") is not True]
    wrong_count = min(len(wrong), max(PER_BENCHMARK // 2, PER_BENCHMARK - len(right)))
    return right[: PER_BENCHMARK - wrong_count] + wrong[:wrong_count]


def show(examples: list[Example]) -> list[tuple[Example, list[ScoredImage]]]:
    """Examples with their images and scored captions; all bars share one scale."""
    scores = [score for example in examples for row in score_matrix(example.row) for score in row]
    return [(example, _show(example, min(scores), max(scores))) for example in examples]


def _show(example: Example, low: float, high: float) -> list[ScoredImage]:
    """Images with scored captions; caption k and any hard positives are correct for image k."""
    if len(example.row["captions"]) == 1 and len(example.images) > 1:
        return _show_images(example, low, high)
    images = []
    for k, (file, row) in enumerate(zip(example.images, score_matrix(example.row), strict=False)):
        right = [k, *example.row.get("positives", ())]
        wrong = [i for i in range(len(row)) if i not in right]
        is_right = all(row[i] > row[j] for i in right for j in wrong)
        # a tie counts as an error
        chosen = max([*wrong, *right], key=lambda i: row[i])
        options = [
            Option(
                caption=str(caption),
                score=score,
                share=_share(score, low, high),
                is_correct=i in right,
                is_chosen=i == chosen,
            )
            for i, (caption, score) in enumerate(zip(example.row["captions"], row, strict=True))
        ]
        texts = (_text(example.row, name, k) for name in ("question", "answer"))
        options.sort(key=lambda option: -option.score)
        images.append(ScoredImage(file, options, is_right, *texts))
    return images


def _text(row: Mapping[str, Any], name: str, k: int) -> str:
    """Text of image k: a row has one per image (multiple choice) or a single one."""
    value = row.get(f"{name}s", row.get(name))
    if isinstance(value, list):
        value = value[k] if k < len(value) else None
    return value if isinstance(value, str) else ""


def _show_images(example: Example, low: float, high: float) -> list[ScoredImage]:
    """Images of one caption, the first of which is correct."""
    caption = str(example.row["captions"][0])
    scores = [row[0] for row in score_matrix(example.row)]
    chosen = max(range(1, len(scores)), key=lambda k: scores[k])
    # a tie counts as an error
    chosen = 0 if scores[0] > scores[chosen] else chosen
    return [
        ScoredImage(
            file,
            [Option(caption, scores[k], _share(scores[k], low, high), k == 0, k == chosen)],
            # the correct image is right if it wins, a wrong one if it scores below the correct one
            chosen == 0 if k == 0 else scores[k] < scores[0],
        )
        for k, file in enumerate(example.images)
    ]


def _share(score: float, low: float, high: float) -> float:
    """Length of a bar; at least 4 %, since length 0 would look like a missing score."""
    return 0.04 + 0.96 * (score - low) / (high - low) if high > low else 0.5

"""The files of MMVP and MMVP-VLM: all four tables."""

import csv
from pathlib import Path

from tests.support.sets.files import picture

NUMBERS = [1, 2, 99, 100, 279, 280]  # of MMVP; a gap in the numbers is a pair that is not here
PAIRS = 16  # of MMVP-VLM: one more than a category has
TYPES = ("Orientation", "Presence")


def write(root: Path) -> None:
    for number in NUMBERS:
        picture(root / "mmvp" / "MMVP Images" / f"{number}.jpg")
    kinds = [TYPES[pair // 15] for pair in range(PAIRS) for _ in (0, 1)]
    for number, kind in enumerate(kinds, 1):
        picture(root / "mmvp_vlm" / "MLLM_VLM Images" / kind / f"{number}.jpg")
    numbers = range(1, 2 * PAIRS + 1)
    _table(root / "mmvp" / "Questions-clip.csv", _statements(NUMBERS, ["Unknown"] * len(NUMBERS)))
    _table(root / "mmvp" / "Questions.csv", _questions(NUMBERS))
    _table(root / "mmvp_vlm" / "Questions.csv", _statements(numbers, kinds))
    _table(root / "mmvp_vlm" / "Questions-llava.csv", _questions(numbers))


def _statements(numbers, kinds):
    yield "Question ID", "Type", "Statement"
    for number, kind in zip(numbers, kinds, strict=True):
        side = "left" if number % 2 else "right"
        yield number, kind, f"a boat, seen from the {side} of pier {number // 2} "


def _questions(numbers):
    yield "lndex", "Question", "Options", "Correct Answer"  # their spelling
    for number in numbers:
        question = f"Is the boat of pier {number // 2} left, or right?"
        yield number, question, " (a) On the left (b) Right", "(a)" if number % 2 else "(b)"


def _table(path: Path, rows) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)

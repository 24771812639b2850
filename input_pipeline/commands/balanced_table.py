"""The table that `vlc-jax hard_texts --balance` writes: captions with the texts that are kept."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.hard_texts import balance
from vlc_jax.input_pipeline.hard_texts.generator import Generator
from vlc_jax.input_pipeline.stores import progress

# Of the image in tables; COCO's rows, and rows without such a column, are images.
IMAGE_COLUMNS = ("image", "filepath")


class Texts(NamedTuple):
    """The candidates of a generator for every caption: the first is its text; none: it has none."""

    side: str  # negatives | positives
    generator: Generator
    candidates: list[list[str]]

    def options(self, captions: Sequence[str]) -> tuple[np.ndarray, list[list[str]]]:
        """Indices of the captions with a text, and each of these captions with its candidates."""
        options = [
            (index, [caption, *texts])
            for index, (caption, texts) in enumerate(zip(captions, self.candidates, strict=True))
            if texts and texts[0] != caption
        ]
        return np.array([index for index, _ in options], np.int64), [each for _, each in options]


def images_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The image of each row; rows of one image are in one fold of the classifier."""
    numbers: dict[int, int] = {}
    images = []
    for row in rows:
        # the captions of one row share the object
        number = f"row {numbers.setdefault(id(row), len(numbers))}"
        images.append(str(next((row[name] for name in IMAGE_COLUMNS if name in row), number)))
    return images


def check_out(out: Path, table: Path) -> None:
    """Raises ValueError unless OUT is new, or of this command, which leaves OUT.rounds.jsonl."""
    if out.is_dir() or not out.name:
        raise ValueError(f"--out {out} is a folder; name a file")
    if not out.parent.is_dir():
        raise ValueError(f"--out {out}: there is no folder {out.parent}; make it")
    if out.exists() and (out.resolve() == table.resolve() or not _log(out).exists()):
        raise ValueError(f"--out {out} is a file that this command did not write; name another")


def _log(out: Path) -> Path:
    return out.with_name(f"{out.name}.rounds.jsonl")


def write(
    made: Mapping[str, Texts],
    captions: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    target: float,
    seed: int,
    out: Path,
) -> list[str]:
    """Filters the texts of every kind, writes the table, and returns a line per kind.

    rows: of each caption.   target: see `balance.Pairs.balanced`. Continues the rounds of
    OUT.rounds.jsonl. Raises ValueError if they are of another request.
    """
    images = images_of(rows)
    options = {name: texts.options(captions) for name, texts in made.items()}
    versions = {name: texts.generator.version for name, texts in made.items()}
    digests = {name: balance.digest(of_kind) for name, (_, of_kind) in options.items()}
    request = {"balance": target, "seed": seed, "versions": versions, "texts": digests}
    log = balance.RoundLog(_log(out), request)
    chosen: dict[str, dict[int, str]] = {}
    lines = []
    for name, (indices, of_kind) in options.items():
        choice = np.zeros(len(indices), np.int64)
        shares = []
        if len(of_kind) < balance.FEW:
            choice -= 1
        else:
            pairs = balance.Pairs(of_kind, [images[index] for index in indices])
            shares.append(pairs.separability(choice, seed))
            choice = _balanced(pairs, name, target, seed, log)
            shares += [pairs.separability(choice, seed)] if (choice >= 0).any() else []
        chosen[name] = {
            int(index): each[1 + k]
            for index, each, k in zip(indices, of_kind, choice, strict=True)
            if k >= 0
        }
        lines.append(_line(name, choice, shares))
    _write_rows(made, chosen, captions, rows, out)
    for side in dict.fromkeys(texts.side for texts in made.values()):
        if any(row.get(side) for row in rows):
            lines.append(
                f"  WARNING: the {side} that the captions' table had are not in the new one"
            )
    return lines


def _line(name: str, choice: np.ndarray, shares: Sequence[float]) -> str:
    count, others = int((choice >= 0).sum()), int((choice > 0).sum())
    share = 100 * count / max(1, len(choice))
    blind = " -> ".join(f"{100 * share:.1f}" for share in shares)
    line = f"  {name}: keeps {count:,} of {len(choice):,} ({share:.1f} %)"
    line += f", {others:,} of them another candidate" if others else ""
    if len(choice) < balance.FEW:
        return f"{line}; WARNING: fewer than {balance.FEW} pairs are not judged, none is kept"
    line += "" if count else f"; WARNING: fewer than {balance.FEW} would be left, none is kept"
    return f"{line}; blind {blind} % (chance 50)" if blind else line


def _balanced(
    pairs: balance.Pairs, name: str, target: float, seed: int, log: balance.RoundLog
) -> np.ndarray:
    line = progress.Line()

    def after(each: balance.Round) -> None:
        log.append(name, each)
        if line.is_due():
            left = f"{each.left:,} of {len(pairs):,} texts left"
            line.show(f"{name}: round {each.number}, {left}, blind {100 * each.separability:.1f} %")

    try:
        return pairs.balanced(target, seed, after, log.of(name))
    finally:
        line.end()


def _write_rows(
    made: Mapping[str, Texts],
    chosen: Mapping[str, Mapping[int, str]],
    captions: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    out: Path,
) -> None:
    sides = dict.fromkeys(texts.side for texts in made.values())
    with stores.replacing(out) as file:
        for index, (caption, row) in enumerate(zip(captions, rows, strict=True)):
            line = {**row, "caption": caption}
            for side in sides:
                of_side = [name for name, texts in made.items() if texts.side == side]
                kinds = [name for name in of_side if index in chosen[name]]
                line[side] = [chosen[name][index] for name in kinds]
                line[f"{side.removesuffix('s')}_kinds"] = kinds
            file.write(json.dumps(line, ensure_ascii=False) + "\n")

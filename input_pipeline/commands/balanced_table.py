"""The table that `vlc-jax hard_texts --balance` writes: captions with the texts that are kept.

Its rows come in blocks of the rows of the captions' table. A block is a part of `parts.Parts` that
is filtered by itself: a pure function of its rows and the request, with one process or many.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.commands import candidates_of, parts
from vlc_jax.input_pipeline.commands.candidates_of import CandidatesOf, Texts
from vlc_jax.input_pipeline.hard_texts import balance
from vlc_jax.input_pipeline.hard_texts.llm import captions as caption_files
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.stores import progress

# Of the image in tables; COCO's rows, and rows without such a column, are images.
IMAGE_COLUMNS = ("image", "filepath")
# Rows of a block, at most, by default. The texts of a smaller one give themselves away among those
# of other blocks; a larger one takes more memory, 7 kB per caption and candidate, and minutes.
BLOCK = 100_000
LEAST = 500  # rows of --block: of fewer a classifier learns little
# Kept pairs of all blocks, about, that are judged together: four of the five folds are MOST.
TOGETHER = 5 * balance.MOST // 4


@dataclasses.dataclass(frozen=True)
class Block:
    """A block of the table: a function of `parts.Parts`, whose result is a line of JSON with counts
    (a tree, see `candidates_of.add`), then the rows.

    target: see `balance.Pairs.balanced`.   is_shown: prints the rounds of the filter.
    sampled: kept pairs of a kind that are in the counts, to be judged with those of other blocks.
    """

    table: caption_files.Rows
    candidates: CandidatesOf
    target: float
    is_shown: bool = False
    sampled: int = 0

    def __call__(self, numbers: range) -> bytes:
        captions, rows = read(self.table, numbers)
        # Draws are numbered from the block's first row. Where rows have several captions, numbers
        # of two blocks, and so draws, can be equal: a count of all captions would read all rows.
        made = self.candidates(captions, numbers.start)
        images = images_of(rows, numbers.start)
        counts = candidates_of.counted(made, captions, has_words=not numbers.start)
        chosen: dict[str, dict[int, str]] = {}
        for name, texts in made.items():
            indices, options = texts.options(captions)
            choice, of_kind = self._filtered(name, options, [images[index] for index in indices])
            counts["kinds"][name] |= of_kind
            zipped = zip(indices.tolist(), options, choice.tolist(), strict=True)
            chosen[name] = {index: each[1 + k] for index, each, k in zipped if k >= 0}
            drawn = np.random.default_rng(self.candidates.seed).permutation([*chosen[name]])
            counts["kinds"][name]["sample"] = [
                (images[index], captions[index], chosen[name][index])
                for index in drawn[: self.sampled].tolist()
            ]
        sides = dict.fromkeys(texts.side for texts in made.values())
        counts["own"] = {side: sum(bool(row.get(side)) for row in rows) for side in sides}
        lines = _lines(made, chosen, captions, rows)
        return "".join([json.dumps({**counts, "blocks": 1}) + "\n", *lines]).encode()

    def _filtered(
        self, name: str, options: Sequence[Sequence[str]], images: Sequence[str]
    ) -> tuple[np.ndarray, dict[str, float]]:
        """The candidate of each pair, -1: none, and the counts of the filter."""
        seed = self.candidates.seed
        choice = np.zeros(len(options), np.int64)
        before = after = np.zeros(0)
        is_judged = len(options) >= balance.FEW
        if is_judged:
            pairs = balance.Pairs(options, images)
            before = pairs.credit(choice, seed)
            choice = _balanced(pairs, name, self.target, seed, self.is_shown)
            after = pairs.credit(choice, seed) if (choice >= 0).any() else after
        else:
            choice -= 1
        kept = int((choice >= 0).sum())
        return choice, {
            "pairs": len(options),
            "kept": kept,
            "others": int((choice > 0).sum()),
            # blocks with too few pairs, and those of which too few would be left
            "few": int(not is_judged),
            "none": int(is_judged and not kept),
            # recognized pairs, of those that are judged and those that are kept
            "judged": len(before),
            "before": float(before.sum()),
            "after": float(after.sum()),
        }


def read(table: caption_files.Rows, numbers: range) -> tuple[list[str], list[dict[str, Any]]]:
    """The captions of some rows, and the row of each."""
    captioned = [(caption, row) for row, of in map(table.__getitem__, numbers) for caption in of]
    return [caption for caption, _ in captioned], [row for _, row in captioned]


def images_of(rows: Sequence[Mapping[str, Any]], first: int = 0) -> list[str]:
    """The image of each row; rows of one image are in one fold of the classifier.

    first: number of the first row, which names a row without a column of images.
    """
    numbers: dict[int, int] = {}
    images = []
    for row in rows:
        # the captions of one row share the object
        number = f"row {numbers.setdefault(id(row), first + len(numbers))}"
        images.append(str(next((row[name] for name in IMAGE_COLUMNS if name in row), number)))
    return images


def check_out(out: Path, table: Path) -> None:
    """Raises ValueError unless OUT is new, or of this command, which writes OUT.json, too."""
    if out.is_dir() or not out.name:
        raise ValueError(f"--out {out} is a folder; name a file")
    if not out.parent.is_dir():
        raise ValueError(f"--out {out}: there is no folder {out.parent}; make it")
    if out.exists() and (out.resolve() == table.resolve() or _made(out) is None):
        raise ValueError(f"--out {out} is a file that this command did not write; name another")


def write(block: Block, size: int, out: Path, engine: parts.Engine | None) -> dict[str, Any]:
    """Writes the table, and OUT.json with the request and the counts, which it returns.

    size: rows of a block, at most.   engine: None: this process. Finished blocks in OUT.parts, and
    a finished table, are not computed again. Raises ValueError if they are of another request,
    DataError for rows that cannot be read, ConnectionError for a lost worker.
    """
    total, request = len(block.table), {"balance": block.target, **block.candidates.request}
    # blocks of one size: the last one would be too small to be judged
    blocks = -(-total // size)
    size = -(-total // blocks)
    request = {"table": block.table.digest, "rows": total, "block": size, **request}
    made = _made(out)
    if made is not None and made["request"] != json.loads(json.dumps(request)):
        raise ValueError(
            f"{_beside(out)} is of other captions, kinds, options, seed, --block or --balance; "
            "remove it and its table, or name another --out"
        )
    # of one block the block's own judgement is that of all
    block = dataclasses.replace(block, sampled=-(-TOGETHER // blocks) if blocks > 1 else 0)
    work = parts.Parts(block, parts.beside(out), total, size, request)
    if made is not None and out.exists():
        parts.remove(work.out)
        return made["counts"]
    with progress.bar("balancing", total) as advance:
        _run(work, engine, advance)
    counts: dict[str, Any] = {}
    with stores.replacing(out) as file:
        for content in parts.contents(work):
            head, _, rows = content.partition(b"\n")
            candidates_of.add(counts, json.loads(head))
            file.write(rows.decode())
        for of_kind in counts["kinds"].values():
            of_kind |= _together(of_kind.pop("sample"), block.candidates.seed)
        # before OUT: without it OUT would be a file that this command did not write
        with stores.replacing(_beside(out)) as beside:
            json.dump({"request": request, "counts": counts}, beside, indent=1)
    parts.remove(work.out)
    return counts


def described(counts: Mapping[str, Any], target: float) -> list[str]:
    """A line per kind, and warnings."""
    blocks = counts["blocks"]
    lines = [_line(name, each, blocks, target) for name, each in counts["kinds"].items()]
    for side in [side for side, rows in counts["own"].items() if rows]:
        lines.append(f"  WARNING: the {side} that the captions' table had are not in the new one")
    return lines


def _line(name: str, count: Mapping[str, Any], blocks: int, target: float) -> str:
    share = 100 * count["kept"] / max(1, count["pairs"])
    line = f"  {name}: keeps {count['kept']:,} of {count['pairs']:,} ({share:.1f} %)"
    line += f", {count['others']:,} of them another candidate" if count["others"] else ""
    for kind, reason in (("few", "pairs are not judged"), ("none", "would be left")):
        if count[kind]:
            where = f" in {count[kind]:,} of {blocks:,} blocks" if blocks > 1 else ""
            line += f"; WARNING: fewer than {balance.FEW} {reason}{where}, none is kept"
    if not count["judged"]:
        return line
    line += f"; blind {100 * count['before'] / count['judged']:.1f}"
    line += f" -> {100 * count['after'] / count['kept']:.1f}" if count["kept"] else ""
    line += " %" if blocks == 1 else " % within blocks"
    if count["sampled"]:
        of_all = f"{count['sampled']:,} kept texts of all blocks"
        line += f", {100 * count['together']:.1f} % for {of_all}"
    line += " (chance 50)"
    if count["together"] > target + balance.MARGIN:
        line += "; WARNING: this is above --balance, a larger --block filters more"
    return line


def _together(sample: Sequence[Sequence[str]], seed: int) -> dict[str, float]:
    """Number of sampled pairs, (image, caption, text), and their separability; 0 of few.

    It is higher than in the blocks: more pairs show what a block is too small to show.
    """
    if len(sample) < balance.FEW:
        return {"sampled": 0, "together": 0.0}
    pairs = balance.Pairs([pair[1:] for pair in sample], [pair[0] for pair in sample])
    share = pairs.separability(np.zeros(len(pairs), np.int64), seed)
    return {"sampled": len(sample), "together": share}


def _made(out: Path) -> dict[str, Any] | None:
    """Request and counts of a table of this command; None for any other file."""
    try:
        made = json.loads(_beside(out).read_text("utf-8"))
        return {"request": made["request"], "counts": made["counts"]}
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _beside(out: Path) -> Path:
    return out.with_name(f"{out.name}.json")


def _run(work: parts.Parts, engine: parts.Engine | None, advance: parts.Advance) -> None:
    """Writes all parts; raises the DataError of one at once, as the others may take days."""
    errors: list[str] = []

    def until_damaged(work: parts.Work, report: parts.Report, advance: parts.Advance) -> None:
        def is_whole(head: Mapping[str, Any]) -> bool:
            errors.extend(filter(None, [head["error"]]))
            return not errors and report(head)

        (engine or parts.in_this_process)(work, is_whole, advance)

    parts.run(work, until_damaged, advance)
    if errors:
        raise DataError(errors[0])


def _balanced(
    pairs: balance.Pairs, name: str, target: float, seed: int, is_shown: bool
) -> np.ndarray:
    line = progress.Line()

    def after(each: balance.Round) -> None:
        if is_shown and line.is_due():
            left = f"{each.left:,} of {len(pairs):,} texts left"
            line.show(f"{name}: round {each.number}, {left}, blind {100 * each.separability:.1f} %")

    try:
        return pairs.balanced(target, seed, after)
    finally:
        line.end()


def _lines(
    made: Mapping[str, Texts],
    chosen: Mapping[str, Mapping[int, str]],
    captions: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
) -> Iterator[str]:
    sides = dict.fromkeys(texts.side for texts in made.values())
    for index, (caption, row) in enumerate(zip(captions, rows, strict=True)):
        line = {**row, "caption": caption}
        for side in sides:
            of_side = [name for name, texts in made.items() if texts.side == side]
            kinds = [name for name in of_side if index in chosen[name]]
            line[side] = [chosen[name][index] for name in kinds]
            line[f"{side.removesuffix('s')}_kinds"] = kinds
        yield json.dumps(line, ensure_ascii=False) + "\n"

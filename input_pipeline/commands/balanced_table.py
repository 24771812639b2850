"""The table that `vlc-jax hard_texts --balance` writes: captions with the texts that are kept.

A filter is fitted on a sample of the rows of the captions' table. All rows go through it in blocks,
parts of `parts.Parts`: pure functions of the rows and the request, with one process or many.
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.commands import candidates_of, parts
from vlc_jax.input_pipeline.commands.candidates_of import CandidatesOf, Texts
from vlc_jax.input_pipeline.hard_texts import balance
from vlc_jax.input_pipeline.hard_texts.llm import captions as caption_files
from vlc_jax.input_pipeline.stores import any_path, progress

# Of the image in tables; COCO's rows, and rows without such a column, are images.
IMAGE_COLUMNS = ("image", "filepath")
# Rows that the filter is fitted on, at most, by default. Of fewer it knows less; more take memory,
# 7 kB per caption and candidate, and minutes.
SAMPLE = 100_000
LEAST = 500  # rows of --sample: of fewer a classifier learns little
BLOCK = 20_000  # rows of a part
# Kept pairs outside of the sample, about, that are judged: four of the five folds are MOST.
JUDGED = 5 * balance.MOST // 4


class Captions(NamedTuple):
    """Captions of some rows: each with its row, the row's image, and its key.

    key: number of the row, with the place among its captions unless it is the first: "7", "7.1".
    """

    texts: list[str]
    rows: list[dict[str, Any]]
    images: list[str]
    keys: list[str]


class Fitted(NamedTuple):
    """A kind's filter, and the candidate of each caption of the sample by its key, -1: none."""

    filter: balance.Filter
    choice: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Fit:
    """Fits the filters of all kinds: a function of its fields.

    size: rows of the sample.   target: see `balance.Pairs.balanced`.
    """

    table: caption_files.Rows
    candidates: CandidatesOf
    target: float
    size: int

    def __call__(self) -> tuple[dict[str, dict[str, Any]], dict[str, Fitted]]:
        """Counts of each kind; kind -> Fitted. Prints rounds."""
        seed, total = self.candidates.seed, len(self.table)
        draw = np.random.default_rng(seed)
        sample = draw.choice(total, self.size, replace=False, shuffle=False)
        captions = read(self.table, sorted(sample.tolist()))
        counts, fitted = {}, {}
        for name, texts in self.candidates(captions.texts, captions.keys).items():
            indices, options = texts.options(captions.texts)
            images = [captions.images[index] for index in indices]
            counts[name], fitter, choice = self._filtered(name, options, images)
            keys = [captions.keys[index] for index in indices]
            fitted[name] = Fitted(fitter, dict(zip(keys, choice.tolist(), strict=True)))
        return counts, fitted

    def _filtered(
        self, name: str, options: Sequence[Sequence[str]], images: Sequence[str]
    ) -> tuple[dict[str, Any], balance.Filter, np.ndarray]:
        """Counts, the filter, and the candidate of each pair."""
        seed = self.candidates.seed
        counts = {"sample": len(options), "sample_kept": 0, "before": 0.0, "after": 0.0}
        if len(options) < balance.FEW:
            return counts, balance.DROPS_ALL, np.full(len(options), -1)
        pairs = balance.Pairs(options, images)
        line = progress.Line()

        def after(each: balance.Round) -> None:
            if line.is_due():
                left = f"{each.left:,} of {len(pairs):,} texts left"
                blind = f"blind {100 * each.separability:.1f} %"
                line.show(f"{name}: round {each.number}, {left}, {blind}")

        counts["before"] = pairs.separability(np.zeros(len(pairs), np.int64), seed)
        try:
            choice, fitter = pairs.filtered(self.target, seed, after)
        finally:
            line.end()
        if (choice >= 0).any():
            counts["after"] = pairs.separability(choice, seed)
        return counts | {"sample_kept": int((choice >= 0).sum())}, fitter, choice


@dataclasses.dataclass(frozen=True)
class Block:
    """Rows of the table through the filters: a function of `parts.Parts`, whose result is a line of
    JSON with counts (a tree, see `candidates_of.add`), then the rows.

    filters: by kind, of `Fit`.   judged: kept pairs of a kind outside of the sample that are in
    the counts, to be judged with those of other blocks.
    """

    table: caption_files.Rows
    candidates: CandidatesOf
    filters: Mapping[str, Fitted]
    judged: int = 0

    def __call__(self, numbers: range) -> bytes:
        captions = read(self.table, numbers)
        made = self.candidates(captions.texts, captions.keys)
        counts = candidates_of.counted(made, captions.texts, has_words=not numbers.start)
        chosen: dict[str, dict[int, str]] = {}
        for name, texts in made.items():
            fitted = self.filters[name]
            indices, options = texts.options(captions.texts)
            keys = [captions.keys[index] for index in indices]
            choice = np.array([fitted.choice.get(key, -1) for key in keys], np.int64)
            others = [n for n, key in enumerate(keys) if key not in fitted.choice]
            choice[others] = fitted.filter.choice([options[n] for n in others])
            zipped = zip(indices.tolist(), options, choice.tolist(), strict=True)
            chosen[name] = {index: each[1 + k] for index, each, k in zipped if k >= 0}
            outside = [indices[n] for n in others if choice[n] >= 0]
            draw = np.random.default_rng([self.candidates.seed, numbers.start])
            counts["kinds"][name] |= {
                "pairs": len(options),
                "kept": len(chosen[name]),
                "others": int((choice > 0).sum()),
                "judged": [
                    (captions.images[index], captions.texts[index], chosen[name][index])
                    for index in draw.permutation(outside)[: self.judged].tolist()
                ],
            }
        sides = dict.fromkeys(texts.side for texts in made.values())
        counts["own"] = {side: sum(bool(row.get(side)) for row in captions.rows) for side in sides}
        lines = _lines(made, chosen, captions)
        return "".join([json.dumps(counts) + "\n", *lines]).encode()


def read(table: caption_files.Rows, numbers: Iterable[int]) -> Captions:
    """The captions of some rows."""
    captions = Captions([], [], [], [])
    # rows of a list of captions share the object, so that captions of one row are of one image
    names: dict[int, str] = {}
    for number in numbers:
        row, texts = table[number]
        if not texts:  # its object is freed, and another row may get the same id
            continue
        name = names.setdefault(id(row), f"row {number}")
        image = str(next((row[column] for column in IMAGE_COLUMNS if column in row), name))
        for place, text in enumerate(texts):
            captions.texts.append(text)
            captions.rows.append(row)
            captions.images.append(image)
            captions.keys.append(f"{number}.{place}" if place else f"{number}")
    return captions


def check_out(out: Path, table: Path) -> None:
    """Raises ValueError unless OUT is new, or of this command, which writes OUT.json, too."""
    if out.is_dir() or not out.name:
        raise ValueError(f"--out {out} is a folder; name a file")
    if not out.parent.is_dir():
        raise ValueError(f"--out {out}: there is no folder {out.parent}; make it")
    if out.exists() and (out.resolve() == table.resolve() or _made(out) is None):
        raise ValueError(f"--out {out} is a file that this command did not write; name another")


def write(fit: Fit, out: Path, engine: parts.Engine | None, size: int = BLOCK) -> dict[str, Any]:
    """Writes the table, and OUT.json with the request and the counts, which it returns.

    engine: of the blocks; None: this process.   size: rows of a block. Finished blocks, in
    OUT.parts, and a finished table are not computed again. Raises ValueError if they are of another
    request, DataError for rows that cannot be read, ConnectionError for a lost worker.
    """
    total = len(fit.table)
    fit = dataclasses.replace(fit, size=min(fit.size, total))
    request = {"table": fit.table.digest, "rows": total, "sample": fit.size}
    request |= {"balance": fit.target, **fit.candidates.request}
    made = _made(out)
    if made is not None:
        parts.check_request(_beside(out), made["request"], request)
    folder = parts.beside(out)
    if made is not None and out.exists():
        parts.remove(folder)
        return made["counts"]
    judged = -(-JUDGED // -(-total // size))
    block = Block(fit.table, fit.candidates, {}, judged)
    work = parts.Parts(block, folder, total, size, request)
    # before minutes of fitting
    parts.check(work)
    sample_counts, filters = fit()
    work = dataclasses.replace(work, function=dataclasses.replace(block, filters=filters))
    parts.run(work, "balancing", engine)
    counts: dict[str, Any] = {}
    with stores.replacing(out) as file, parts.parsing(folder):
        for content in parts.contents(work):
            head, _, rows = content.partition(b"\n")
            candidates_of.add(counts, stores.parse_json(head))
            file.write(rows.decode())
        for name, kind_counts in counts["kinds"].items():
            outside = _outside(kind_counts.pop("judged"), fit.candidates.seed)
            kind_counts |= sample_counts[name] | outside
        # before OUT: without it OUT would be a file that this command did not write
        with stores.replacing(_beside(out)) as beside:
            json.dump({"request": request, "counts": counts}, beside, indent=1)
    parts.remove(folder)
    return counts


def described(counts: Mapping[str, Any], target: float) -> list[str]:
    """A line per kind, and warnings."""
    lines = [_line(name, each, target) for name, each in counts["kinds"].items()]
    for side in [side for side, rows in counts["own"].items() if rows]:
        lines.append(f"  WARNING: the {side} that the captions' table had are not in the new one")
    return lines


def _line(name: str, count: Mapping[str, Any], target: float) -> str:
    share = 100 * count["kept"] / max(1, count["pairs"])
    line = f"  {name}: keeps {count['kept']:,} of {count['pairs']:,} ({share:.1f} %)"
    line += f", {count['others']:,} of them another candidate" if count["others"] else ""
    where = " of the sample" if count["sample"] < count["pairs"] else ""
    if count["sample"] < balance.FEW:
        pairs = f"fewer than {balance.FEW} pairs{where}"
        return f"{line}; WARNING: {pairs} are not judged, none is kept"
    if not count["sample_kept"]:
        line += f"; WARNING: fewer than {balance.FEW}{where} would be left, none is kept"
    line += f"; blind {100 * count['before']:.1f}"
    line += f" -> {100 * count['after']:.1f}" if count["sample_kept"] else ""
    line += f" %{where}"
    if count["outside"]:
        line += f", {100 * count['blind_outside']:.1f} % of {count['outside']:,} others"
    line += " (chance 50)"
    if count["blind_outside"] > target + balance.MARGIN:
        line += "; WARNING: this is above --balance, a larger --sample filters more"
    return line


def _outside(sample: Sequence[Sequence[str]], seed: int) -> dict[str, float]:
    """Number of kept pairs outside of the sample, (image, caption, text), and their separability; 0
    of few.

    It is higher than that of the sample: a classifier that is fitted on the kept pairs sees what
    the filter, fitted on others, did not.
    """
    if len(sample) < balance.FEW:
        return {"outside": 0, "blind_outside": 0.0}
    pairs = balance.Pairs([pair[1:] for pair in sample], [pair[0] for pair in sample])
    share = pairs.separability(np.zeros(len(pairs), np.int64), seed)
    return {"outside": len(sample), "blind_outside": share}


def _made(out: Path) -> dict[str, Any] | None:
    """Request and counts of a table of this command; None for any other file."""
    try:
        made = any_path.read_json(_beside(out))
        return {"request": dict(made["request"]), "counts": made["counts"]}
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _beside(out: Path) -> Path:
    return out.with_name(f"{out.name}.json")


def _lines(
    made: Mapping[str, Texts], chosen: Mapping[str, Mapping[int, str]], captions: Captions
) -> Iterator[str]:
    sides = dict.fromkeys(texts.side for texts in made.values())
    for index, (caption, row) in enumerate(zip(captions.texts, captions.rows, strict=True)):
        line = {**row, "caption": caption}
        for side in sides:
            names = [name for name, texts in made.items() if texts.side == side]
            kinds = [name for name in names if index in chosen[name]]
            line[side] = [chosen[name][index] for name in kinds]
            line[f"{side.removesuffix('s')}_kinds"] = kinds
        yield json.dumps(line, ensure_ascii=False) + "\n"

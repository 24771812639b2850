"""Several folders of shards, from which training draws by weights."""

import dataclasses
import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from vlc_jax.input_pipeline.record import DataError, Record, Source
from vlc_jax.input_pipeline.sources import mixture_order, published
from vlc_jax.input_pipeline.sources.shards import ShardsSource

_WEIGHTED = re.compile(r"(.+):(\d+\.?\d*|\.\d+)")


def make_shards(
    split: str = "all",
    *,
    path: str | Path,
    shuffle: str = "global",
    stage: str | Path | None = None,
    stage_gb: float = 100.0,
    weights: Mapping[str, Any] | None = None,
    caption_weights: Sequence[float] | None = None,
) -> Source:
    """The shards of a folder, or of several, `path="a:0.7+b:0.3"`.

    path: folders joined by "+", each with ":" and its weight, or none with one: then by their
      numbers of records.   weights: steps from which on others hold: {"10000": [0.5, 0.5]}.
    The rest, and what is raised, as in ShardsSource.
    """
    folders, first = _parts(str(path))
    options = {"shuffle": shuffle, "stage": stage, "stage_gb": stage_gb}
    options["caption_weights"] = caption_weights
    parts = [ShardsSource(split, path=folder, **options) for folder in folders]
    if len(parts) > 1:
        return MixtureSource(dict(zip(folders, parts, strict=True)), first, weights or {})
    if weights:
        raise ValueError(f"weights {weights} belong to several folders; path is {path}")
    return parts[0]


def _parts(path: str) -> tuple[list[str], list[Fraction]]:
    """Folders and their weights, which are [] if there are none."""
    names = published.joined_names(path)
    # the name of a folder that exists is not divided
    matches = [None if Path(name).exists() else _WEIGHTED.fullmatch(name) for name in names]
    weights = [Fraction(match[2]) for match in matches if match]
    if weights and len(weights) < len(names):
        raise ValueError(f"{path}: name a weight for each folder, or for none")
    folders = [match[1] if match else name for match, name in zip(matches, names, strict=True)]
    if len({*folders}) < len(folders):
        raise ValueError(f"{path} names a folder twice; name it once, with the sum of its weights")
    return folders, weights


class MixtureSource:
    """Records of several folders of shards, one folder after the other; ids begin with its name.

    Training draws a share of each step's records from each folder, in that folder's own order
    (mixture_order.py), whose epochs are its own.

    parts: folder -> its shards.   first: their weights, [] for their numbers of records.   weights:
    step -> weights from that step on. Raises ValueError for weights that fit no folder, and for
    stored texts of two versions of a generator.
    """

    def __init__(
        self,
        parts: Mapping[str, ShardsSource],
        first: Sequence[Fraction],
        weights: Mapping[str, Any],
    ) -> None:
        if len(parts) > mixture_order.MOST:
            raise ValueError(f"{len(parts)} folders; at most {mixture_order.MOST} make a mixture")
        short = [Path(folder).name for folder in parts]
        self.names = short if len({*short}) == len(short) else [*parts]
        self.parts = [*parts.values()]
        sizes = [len(part) for part in self.parts]
        self.weights = {0: first or [Fraction(size) for size in sizes]}
        self.weights |= {_step(step): _fractions(each) for step, each in weights.items()}
        for step, each in self.weights.items():
            if len(each) != len(parts) or min(each) < 0 or not max(each):
                raise ValueError(
                    f"weights from step {step} on: {len(parts)} numbers, one per folder, not "
                    f"negative and not all 0; got {[*map(float, each)]}"
                )
        self._ends = np.cumsum(sizes)
        self.shuffle = self.parts[0].shuffle
        self.has_text_only = any(part.has_text_only for part in self.parts)
        self.text_versions = _merged([part.text_versions for part in self.parts])
        content = [[part.fingerprint for part in self.parts], self.names]
        content.append([[step, *map(str, self.weights[step])] for step in sorted(self.weights)])
        self.fingerprint = (
            f"mixture/{hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]}"
        )

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> Record:
        number = int(np.searchsorted(self._ends, index, side="right"))
        part = self.parts[number]
        return self._named(number, part[int(index - self._ends[number]) + len(part)])

    def find(self, record_id: str) -> Record:
        """Raises DataError if there is no such record, or if it cannot be read."""
        for number, name in enumerate(self.names):
            if record_id.startswith(f"{name}/"):
                return self._named(number, self.parts[number].find(record_id[len(name) + 1 :]))
        raise DataError(f"{record_id!r} is of none of the folders {self.names}")

    def _named(self, number: int, record: Record) -> Record:
        # ids are unique in a folder alone, and a run knows bad records by them
        name = self.names[number]
        others = [f"{name}/{other}" for other in record.hard_images]
        return dataclasses.replace(record, id=f"{name}/{record.id}", hard_images=others)

    def read_ahead(self, indices: np.ndarray) -> None:
        """Starts to copy the shards of these records, if there is a stage."""
        numbers = np.searchsorted(self._ends, indices, side="right")
        for number, part in enumerate(self.parts):
            part.read_ahead(indices[numbers == number] - self._ends[number] + len(part))

    def take_counts(self) -> dict[str, int]:
        """Reads of this process since the last call, of all folders (ReadCounts)."""
        counts: Counter[str] = Counter()
        for part in self.parts:
            counts.update(part.take_counts())
        return dict(counts)


def _step(text: object) -> int:
    try:
        step = int(str(text))
    except ValueError:
        step = 0
    if step < 1:
        raise ValueError(f"weights: a step from 1 on and its weights; got {text!r}")
    return step


def _fractions(weights: Any) -> list[Fraction]:
    try:
        return [Fraction(str(weight)) for weight in weights]
    except (TypeError, ValueError):
        raise ValueError(f"weights are a list of numbers; got {weights!r:.80}") from None


def _merged(versions: Sequence[Mapping[str, Mapping[str, str]]]) -> dict[str, dict[str, str]]:
    merged: dict[str, dict[str, str]] = {}
    for side, kind in itertools.product(("negatives", "positives"), versions):
        for name, version in kind.get(side, {}).items():
            known = merged.setdefault(side, {}).setdefault(name, version)
            if known != version:
                raise ValueError(
                    f"stored {side} {name} of the versions {known!r} and {version!r} cannot be "
                    "mixed; prepare the folders with one version"
                )
    return merged

"""Candidates for the hard texts of captions, of which `vlc-jax hard_texts --balance` takes one, and
counts of them, which are summed over blocks of captions."""

import collections
import dataclasses
import functools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from vlc_jax.input_pipeline.hard_texts import sampling
from vlc_jax.input_pipeline.hard_texts.generator import Generator

FEW = 0.5  # share of captions with a text below which a warning is printed
NEW_WORDS = 6  # printed per kind


class Texts(NamedTuple):
    """The candidates of a generator for every caption: the first is its text; none: it has none."""

    side: str  # negatives | positives
    candidates: list[list[str]]

    def options(self, captions: Sequence[str]) -> tuple[np.ndarray, list[list[str]]]:
        """Indices of the captions with a text, and each of these captions with its candidates."""
        options = [
            (index, [caption, *texts])
            for index, (caption, texts) in enumerate(zip(captions, self.candidates, strict=True))
            if texts and texts[0] != caption
        ]
        return np.array([index for index, _ in options], np.int64), [each for _, each in options]


@dataclasses.dataclass(frozen=True)
class CandidatesOf:
    """Candidates of captions: a pure function of them; pickles to workers.

    options: generator -> its options.   count: most candidates of a caption and generator.
    """

    options: Mapping[str, Mapping[str, Any]]
    count: int
    seed: int

    @property
    def request(self) -> dict[str, Any]:
        """Everything besides the captions that determines the candidates."""
        versions = {name: each.version for name, (_, each) in self._generators.items()}
        of = {"candidates": self.count, "seed": self.seed}
        return {"options": self.options, "versions": versions, **of}

    def __call__(self, captions: Sequence[str], keys: Sequence[str]) -> dict[str, Texts]:
        """Generator -> the candidates of each caption.   keys: of each, for draws."""
        return {
            name: Texts(
                side,
                [
                    sampling.several_texts(
                        generator,
                        caption,
                        sampling.stream(f"{key}/{side}/{name}", self.seed),
                        self.count,
                    )
                    for key, caption in zip(keys, captions, strict=True)
                ],
            )
            for name, (side, generator) in self._generators.items()
        }

    @property
    def _generators(self) -> dict[str, tuple[str, Generator]]:
        return _generators(json.dumps(self.options))


# a tagger takes seconds to load; threads of a process share it
@functools.lru_cache(maxsize=2)
def _generators(options: str) -> dict[str, tuple[str, Generator]]:
    return {name: sampling.find_generator(name, of) for name, of in json.loads(options).items()}


def counted(made: Mapping[str, Texts], captions: Sequence[str], has_words: bool) -> dict[str, Any]:
    """Counts of captions and their texts, a tree that `add` sums.

    has_words: counts words that occur in no caption, too.
    """
    known = {word for caption in captions for word in _words(caption)} if has_words else set()
    kinds = {}
    for name, each in made.items():
        first = [candidates[:1] for candidates in each.candidates]
        pairs = zip(first, captions, strict=True)
        words = (word for texts in first if has_words for text in texts for word in _words(text))
        kinds[name] = {
            "texts": sum(map(len, first)),
            "same": sum(caption in texts for texts, caption in pairs),
            "new": collections.Counter(word for word in words if word not in known),
        }
    return {"captions": len(captions), "different": len(set(captions)), "kinds": kinds}


def add(total: dict[str, Any], counts: Mapping[str, Any]) -> None:
    """Adds a tree of numbers and lists to another one, in place."""
    for name, value in counts.items():
        if isinstance(value, dict):
            add(total.setdefault(name, {}), value)
        else:
            total[name] = total[name] + value if name in total else value


def described(counts: Mapping[str, Any], blind: Mapping[str, str]) -> list[str]:
    """A line per kind: captions with a text, warnings, separability, words that are in no caption.

    counts: of `counted`.   blind: kind -> its separability in words; "": not known.
    """
    captions = counts["captions"]
    lines = [f"\nof {captions:,} captions:"]
    if 2 * counts["different"] <= captions:
        lines.append(
            f"  WARNING: only {counts['different']:,} of the captions are different: others are in "
            "several images, so the classifier knows them by heart and blind is too high"
        )
    for name, kind_counts in counts["kinds"].items():
        line = f"  {name}: {kind_counts['texts']:,} have a text"
        if kind_counts["texts"] < FEW * captions:
            line += "; WARNING: most have none, and take no part in the loss"
        if kind_counts["same"]:
            line += f"; WARNING: {kind_counts['same']:,} are the caption itself"
        line += f"; {blind[name]}" if blind.get(name) else ""
        if new := collections.Counter(kind_counts["new"]):
            most_common = ", ".join(word for word, _ in new.most_common(NEW_WORDS))
            line += f"; new words: {len(new):,}, such as {most_common}"
        lines.append(line)
    return lines


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())

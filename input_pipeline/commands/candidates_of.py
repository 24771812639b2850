"""Candidates for the hard texts of captions, of which `vlc-jax hard_texts --balance` takes one."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from vlc_jax.input_pipeline.hard_texts import sampling
from vlc_jax.input_pipeline.hard_texts.generator import Generator


@dataclasses.dataclass(frozen=True)
class CandidatesOf:
    """Candidates of a range of captions: a pure function of it; pickles to workers.

    options: generator -> its options.   count: most candidates of a caption and generator.
    """

    captions: Sequence[str]
    options: Mapping[str, Mapping[str, Any]]
    count: int
    seed: int

    @property
    def generators(self) -> dict[str, tuple[str, Generator]]:
        """Name -> side and generator."""
        return _generators(json.dumps(self.options))

    @property
    def request(self) -> dict[str, Any]:
        """Everything that determines the candidates."""
        return {
            "captions": hashlib.sha256(json.dumps(self.captions).encode()).hexdigest(),
            "options": self.options,
            "versions": {name: each.version for name, (_, each) in self.generators.items()},
            "candidates": self.count,
            "seed": self.seed,
        }

    def __call__(self, indices: range) -> list[list[list[str]]]:
        """For each generator, the candidates of each caption."""
        return [
            [
                sampling.several_texts(
                    generator,
                    self.captions[index],
                    sampling.stream(f"{index}/{side}/{name}", self.seed),
                    self.count,
                )
                for index in indices
            ]
            for name, (side, generator) in self.generators.items()
        ]

    def json(self, indices: range) -> bytes:
        """The same as JSON."""
        return json.dumps(self(indices)).encode()


# a tagger takes seconds to load; threads of a process share it
@functools.lru_cache(maxsize=2)
def _generators(options: str) -> dict[str, tuple[str, Generator]]:
    return {name: sampling.find_generator(name, of) for name, of in json.loads(options).items()}

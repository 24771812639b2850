"""What the head of a model saw of an example: the file that evaluation left, and what of it is
shown. vlc_jax/evaluators/patch_maps.py says what the arrays of a file are.
"""

import difflib
import math
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vlc_jax.report.examples import Option, Shown

KINDS = {  # map -> (what its scale measures, what the report says about it)
    "weights": (
        "weight of the patch",
        "Maps: how much each patch counts when the image is compared with that caption (PACL).",
    ),
    "groups": (
        "weight of the patch for the token",
        "Maps: the patches that each token of a caption picks, 1 in sum (SPARC). Over the image "
        "the tokens in which the captions differ; below them every token against all patches.",
    ),
    "similarity": (
        "similarity",
        "Maps: the similarities that the head's network reads (DCSM). Over the image the tokens in "
        "which the captions differ; below them every token against all image tokens. Bold: a "
        "functional word, whose row is a vector of its own, the same for every image.",
    ),
}
SPECIAL = ("(start)", "(end)")  # input_pipeline/tokenizers/token_labels.py


@dataclass(frozen=True)
class Maps:
    """A file: `values` (images, captions, patches) or (images, captions, patches, length)."""

    kind: str
    pixels: np.ndarray
    captions: list[str]
    values: np.ndarray
    tokens: np.ndarray | None
    is_word: np.ndarray | None
    side: int  # patches
    has_class_token: bool

    def over_image(self, patches: np.ndarray) -> np.ndarray:
        """The values of image tokens as rows and columns of patches."""
        return patches[int(self.has_class_token) :].reshape(self.side, self.side)


class Chosen(NamedTuple):
    """A caption whose maps are shown: its place in the file and the tokens that get a picture."""

    place: int
    option: Option
    words: tuple[int, ...] = ()


def read(file: Path, step: int) -> Maps | None:
    """What `file` holds; None if that is of another step, or no map.

    Raises ValueError if it is no such file.
    """
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            found = dict(arrays)
        kind = next((name for name in KINDS if name in found), None)
        if kind is None or int(found["step"]) != step:
            return None
        values = np.nan_to_num(found[kind].astype(np.float64))
        captions = [str(caption) for caption in found["captions"]]
        tokens, is_word = (
            found[key] if values.ndim == 4 else None for key in ("tokens", "is_word")
        )
        return Maps(kind, found["pixels"], captions, values, tokens, is_word, *_grid(values))
    except (OSError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"holds no maps: {error}") from error


def _grid(values: np.ndarray) -> tuple[int, bool]:
    """How many patches a side of the image has, and whether a class token comes before them."""
    count = values.shape[2]
    for has_class_token in (False, True):
        side = math.isqrt(count - has_class_token)
        if side**2 == count - has_class_token:
            return side, has_class_token
    raise ValueError(f"{count} image tokens make no square")


def choose(maps: Maps, shown: Sequence[Shown]) -> list[list[Chosen]]:
    """Per image the correct captions and the best wrong one, as far as the file has them."""
    return [_with_words(maps, _chosen(maps, each)) for each in shown[: len(maps.pixels)]]


def _chosen(maps: Maps, shown: Shown) -> list[Chosen]:
    known = [option for option in shown.options if option.caption in maps.captions]
    right = [option for option in known if option.is_correct]
    wrong = [option for option in known if not option.is_correct]
    return [Chosen(maps.captions.index(o.caption), o) for o in (*right, *wrong[:1])]


def _with_words(maps: Maps, chosen: list[Chosen]) -> list[Chosen]:
    """The same with the tokens in which they differ; where these are functional words only, or
    there is but one caption, with those that it has once.
    """
    if maps.tokens is None:
        return chosen
    tokens = {c.place: [str(t) for t in maps.tokens[c.place] if t] for c in chosen}
    found = []
    for c in chosen:
        own, others = tokens[c.place], [tokens[o.place] for o in chosen if o is not c]
        differing = set().union(*(_differing(own, other) for other in others))
        plain = [
            i
            for i, token in enumerate(own)
            if token not in SPECIAL and not maps.is_word[c.place, i]
        ]
        words = [i for i in plain if i in differing] or [i for i in plain if own.count(own[i]) == 1]
        found.append(c._replace(words=tuple(words)))
    return found


def _differing(own: list[str], other: list[str]) -> set[int]:
    """Where `own` is not like `other`, place by place or, of another length, as `diff` sees it."""
    if len(own) == len(other):
        return {i for i, pair in enumerate(zip(own, other, strict=True)) if pair[0] != pair[1]}
    same = difflib.SequenceMatcher(None, own, other, autojunk=False).get_matching_blocks()
    return set(range(len(own))) - {block.a + i for block in same for i in range(block.size)}

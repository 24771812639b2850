"""Patch maps of an example: reading their file, and choosing the captions and tokens to draw.

vlc_jax/evaluators/patch_maps.py documents the arrays of a file.
"""

import difflib
import math
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vlc_jax.report.examples import Option, ScoredImage

KINDS = {  # kind of map -> (label of its colour scale, its description in the report)
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
MAX_BYTES = 200_000_000  # limit of a file's arrays; a case has some megabytes
# of a damaged file; MemoryError: numpy's, for the size in a header
UNREADABLE = (OSError, LookupError, EOFError, TypeError, zipfile.BadZipFile, MemoryError)
SPECIAL = ("(start)", "(end)")  # labels of input_pipeline/tokenizers/token_labels.py


@dataclass(frozen=True)
class Maps:
    """Maps of one case; values are (images, captions, patches), with tokens (..., length)."""

    kind: str
    pixels: np.ndarray
    captions: list[str]
    values: np.ndarray
    tokens: np.ndarray | None
    is_word: np.ndarray | None
    side: int  # of the image, in patches
    has_class_token: bool

    def over_image(self, patches: np.ndarray) -> np.ndarray:
        """Values of image tokens as a (side, side) grid of patches, without the class token."""
        return patches[int(self.has_class_token) :].reshape(self.side, self.side)


class ShownCaption(NamedTuple):
    """A caption to draw: its index in the file, and the tokens with a thumbnail."""

    index: int
    option: Option
    tokens: tuple[int, ...] = ()


def read(file: Path, step: int) -> Maps | None:
    """Maps in `file`; None if their step differs or their kind is unknown.

    Raises ValueError for a damaged file.
    """
    try:
        with zipfile.ZipFile(file) as members:
            if sum(member.file_size for member in members.infolist()) > MAX_BYTES:
                raise ValueError(f"holds more than {MAX_BYTES:,} bytes")
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            content = dict(arrays)
        kind = next((name for name in KINDS if name in content), None)
        # maps of another step do not belong to the scores on the page
        if kind is None or int(content["step"]) != step:
            return None
        values = np.nan_to_num(content[kind].astype(np.float64))
        captions = [_text(caption) for caption in content["captions"]]
        tokens = is_word = None
        if values.ndim == 4:
            tokens, is_word = _labels(content["tokens"]), content["is_word"].astype(bool)
        maps = Maps(kind, content["pixels"], captions, values, tokens, is_word, *_grid(values))
        _check(maps)
        return maps
    except UNREADABLE as error:
        raise ValueError(f"holds no maps: {error}") from error


def _check(maps: Maps) -> None:
    """Raises ValueError for arrays of inconsistent shapes."""
    images, captions, *tokens = maps.values.shape[:2] + maps.values.shape[3:]
    is_labelled = maps.tokens is not None
    if (
        maps.values.ndim not in (3, 4)
        or maps.pixels.ndim != 4
        or (len(maps.pixels), maps.pixels.shape[3], maps.pixels.dtype) != (images, 3, np.uint8)
        or len(maps.captions) != captions
        or (is_labelled and maps.tokens.shape != (captions, *tokens))
        or (is_labelled and maps.is_word.shape != (captions, *tokens))
        or 0 in (*maps.pixels.shape, *maps.values.shape)
    ):
        raise ValueError(f"holds maps of shape {maps.values.shape} for pixels of another")


def _labels(tokens: np.ndarray) -> np.ndarray:
    """Labels of tokens, (captions, length), as drawable text."""
    if tokens.ndim != 2 or tokens.dtype.kind != "U":
        raise ValueError(f"holds tokens of shape {tokens.shape} and type {tokens.dtype}")
    return np.array([[_text(token) for token in row] for row in tokens])


def _text(value: object) -> str:
    """Text without lone surrogates, which no font can draw (as in `read_workdir`)."""
    return str(value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _grid(values: np.ndarray) -> tuple[int, bool]:
    """Patches per side of the image, and whether they follow a class token."""
    count = values.shape[2]
    for has_class_token in (False, True):
        side = math.isqrt(count - has_class_token)
        if side**2 == count - has_class_token:
            return side, has_class_token
    raise ValueError(f"{count} image tokens make no square")


def choose(maps: Maps, images: Sequence[ScoredImage]) -> list[list[ShownCaption]]:
    """Captions to draw per image: the correct ones and the best wrong one, if in the file."""
    return [_with_tokens(maps, _captions(maps, image)) for image in images[: len(maps.pixels)]]


def _captions(maps: Maps, image: ScoredImage) -> list[ShownCaption]:
    options = [option for option in image.options if option.caption in maps.captions]
    right = [option for option in options if option.is_correct]
    wrong = [option for option in options if not option.is_correct]
    return [ShownCaption(maps.captions.index(o.caption), o) for o in (*right, *wrong[:1])]


def _with_tokens(maps: Maps, captions: list[ShownCaption]) -> list[ShownCaption]:
    """`captions` with the tokens in which they differ.

    If they differ in functional words only (whose columns are equal for all images), or there is
    one caption, the tokens are those that occur once in it.
    """
    if maps.tokens is None:
        return captions
    labels = {c.index: [str(t) for t in maps.tokens[c.index] if t] for c in captions}
    completed = []
    for caption in captions:
        tokens = labels[caption.index]
        others = [labels[other.index] for other in captions if other is not caption]
        differing = set().union(*(_differing(tokens, other) for other in others))
        plain = [
            i
            for i, token in enumerate(tokens)
            if token not in SPECIAL and not maps.is_word[caption.index, i]
        ]
        unique = [i for i in plain if tokens.count(tokens[i]) == 1]
        chosen = [i for i in plain if i in differing] or unique
        completed.append(caption._replace(tokens=tuple(chosen)))
    return completed


def _differing(tokens: list[str], other: list[str]) -> set[int]:
    """Indices where `tokens` differ from `other`: position by position, or by diff if their lengths
    differ."""
    if len(tokens) == len(other):
        return {i for i, pair in enumerate(zip(tokens, other, strict=True)) if pair[0] != pair[1]}
    same = difflib.SequenceMatcher(None, tokens, other, autojunk=False).get_matching_blocks()
    return set(range(len(tokens))) - {block.a + i for block in same for i in range(block.size)}

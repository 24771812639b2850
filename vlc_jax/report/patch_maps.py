"""Patch maps of an example: reads their file, chooses captions and tokens, and draws the figure.

vlc_jax/evaluators/patch_maps.py documents the arrays of a file.
"""

import difflib
import math
import textwrap
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.ticker import MaxNLocator
from PIL import Image

from vlc_jax.report import plot
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
# limit of a file's arrays; a case has some megabytes
MAX_BYTES = 200_000_000
# of a damaged file; MemoryError: numpy's, for the size in a header
UNREADABLE = (OSError, LookupError, EOFError, TypeError, zipfile.BadZipFile, MemoryError)
# The figure is one panel, in inches from its top left.
WIDTH, MARGIN = 10.4, 0.06  # width of the figure; margin at its top and left
SCALE, GAP = 0.95, 0.3  # width of the colour scale at the right; gap between columns
SPACE = 0.08  # gap between thumbnails
LINE, ROW = 0.17, 0.16  # heights of a line of text and of a token
PANEL, THUMBNAIL, LABELS = 2.0, 0.7, 0.95  # sides of pictures; width of token labels
MAX_LINES, MAX_THUMBNAILS = 4, 5
# pixels of the image under a map; more would only enlarge the SVG
MAX_SIDE = 112
# viridis: lightness increases with the value, so it is readable without colour vision
COLOURS, OPACITY = "viridis", 0.65
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


def draw(name: str, maps: Maps, captions: Sequence[Sequence[ShownCaption]]) -> plot.Picture | None:
    """Figure of the maps of every image for its chosen captions; None without captions.

    All maps share one colour scale, so that captions can be compared.
    """
    used = [maps.values[k, c.index] for k, shown in enumerate(captions) for c in shown]
    if not used:
        return None
    norm = Normalize(min(x.min() for x in used), max(x.max() for x in used))
    rows = [_Row(maps, k, shown, norm) for k, shown in enumerate(captions) if shown]
    height = MARGIN + sum(row.height for row in rows)
    scale, title = KINDS[maps.kind]

    def paint(axes: Axes) -> None:
        top = MARGIN
        for row in rows:
            row.paint(axes, top)
            top += row.height
        left = max(row.right for row in rows) + GAP
        _paint_scale(axes, norm, scale, left, min(height - 0.6, 2.4))

    quoted = "; ".join(repr(c.option.caption) for shown in captions for c in shown)
    description = f"The {scale}, from {norm.vmin:.3g} to {norm.vmax:.3g}, for {quoted}."
    return plot.panel(name, title, description, (WIDTH, height), paint)


class _Row:
    """Row of one image: a column per caption with the map over the image, or maps of its tokens."""

    def __init__(self, maps: Maps, image: int, captions: Sequence[ShownCaption], norm: Normalize):
        self.maps, self.captions, self.norm = maps, captions, norm
        self.values = maps.values[image]
        self.picture = _small(maps.pixels[image])
        self.has_tokens = maps.tokens is not None
        room, columns = WIDTH - SCALE - MARGIN, len(captions) + (not self.has_tokens)
        self.column = (room - GAP * (columns - 1)) / columns
        if not self.has_tokens:
            self.column = min(self.column, PANEL)
        self.right = MARGIN + columns * (self.column + GAP) - GAP
        self.titles = [_wrapped(c, self.column) for c in captions]
        self.title = LINE * max(len(lines) for lines in self.titles) + SPACE
        body = self.column
        if self.has_tokens:
            body = LINE + THUMBNAIL + GAP / 2 + ROW * max(self._length(c) for c in captions) + 0.25
        self.height = self.title + body + 0.15

    def paint(self, axes: Axes, top: float) -> None:
        """Draws the row, `top` inches below the upper edge."""
        left, below = MARGIN, top + self.title
        if not self.has_tokens:
            self._paint_image(
                axes, left, below, self.column, None, "the image as the model gets it"
            )
            left += self.column + GAP
        for c, lines in zip(self.captions, self.titles, strict=True):
            colour = plot.THEME["green" if c.option.is_correct else "red"]
            _write(axes, left, top, "\n".join(lines), color=colour, fontsize=9)
            values = self.values[c.index]
            if self.has_tokens:
                self._paint_tokens(axes, left, below + LINE, c, values)
            else:
                self._paint_image(axes, left, below, self.column, values)
            left += self.column + GAP

    def _paint_image(
        self, axes: Axes, left: float, top: float, side: float,
        values: np.ndarray | None, label: str = "",
    ) -> None:  # fmt: skip
        """Draws the picture in colour or, with values, in grey below them; the label above it."""
        box = (left, top, side, side)
        if values is None:
            _show(axes, self.picture, box)
        else:
            _show(axes, np.asarray(Image.fromarray(self.picture).convert("L").convert("RGB")), box)
            _show(axes, self._coloured(self.maps.over_image(values)), box, alpha=OPACITY)
        _write(axes, left, top - LINE, label, color=plot.THEME["muted"], fontsize=8)

    def _paint_tokens(
        self, axes: Axes, left: float, top: float, caption: ShownCaption, values: np.ndarray
    ) -> None:
        """Thumbnails of the caption's tokens; below them all tokens against all image tokens."""
        labels = [_short(label) for label in self.maps.tokens[caption.index]]
        self._paint_image(axes, left, top, THUMBNAIL, None, "image")
        fitting = int((self.column + SPACE) / (THUMBNAIL + SPACE)) - 1
        for k, token in enumerate(caption.tokens[: min(fitting, MAX_THUMBNAILS)]):
            x = left + (k + 1) * (THUMBNAIL + SPACE)
            self._paint_image(axes, x, top, THUMBNAIL, values[:, token], labels[token])
        top, left, width = top + THUMBNAIL + GAP / 2, left + LABELS, self.column - LABELS
        length = self._length(caption)
        bottom = top + ROW * length
        _show(axes, self._coloured(values[:, :length].T), (left, top, width, ROW * length))
        for k, is_word in enumerate(self.maps.is_word[caption.index, :length]):
            style = {"fontweight": "bold" if is_word else "normal", "fontsize": 8}
            corner = (left - SPACE, top + ROW * (k + 0.5))
            _write(axes, *corner, labels[k], ha="right", va="center", **style)
        first = int(self.maps.has_class_token)
        starts = np.arange(first, len(values), self.maps.side) * width / len(values) + left
        axes.vlines(starts, bottom, bottom + 0.05, color=plot.THEME["muted"], linewidth=0.8)
        label = f"{'class token, then ' if first else ''}patches, a tick at each row of the image"
        _write(axes, left, bottom + 0.08, label, color=plot.THEME["muted"], fontsize=8)

    def _length(self, caption: ShownCaption) -> int:
        """Number of tokens up to the end of the caption."""
        return int(np.count_nonzero(self.maps.tokens[caption.index] != ""))

    def _coloured(self, values: np.ndarray) -> np.ndarray:
        return colormaps[COLOURS](self.norm(values), bytes=True)[..., :3]


def _paint_scale(axes: Axes, norm: Normalize, label: str, left: float, height: float) -> None:
    """Draws the colour scale."""
    top = GAP
    colours = colormaps[COLOURS](np.linspace(1, 0, 128), bytes=True)[:, None, :3]
    _show(axes, colours, (left, top, 0.13, height))
    muted = plot.THEME["muted"]
    for value in MaxNLocator(5).tick_values(norm.vmin, norm.vmax):
        if norm.vmin <= value <= norm.vmax and norm.vmax > norm.vmin:
            y = top + height * (1 - float(norm(value)))
            box = (left + 0.13 + SPACE / 2, y)
            _write(axes, *box, f"{value:.3g}", va="center", color=muted, fontsize=8)
    box = (left - SPACE / 2, top + height / 2)
    _write(axes, *box, label, rotation=90, ha="right", va="center", color=muted, fontsize=8)


def _show(
    axes: Axes, pixels: np.ndarray, box: tuple[float, float, float, float], alpha: float = 1.0
) -> None:
    """Draws pixels in a box (left, top, width, height)."""
    left, top, width, height = box
    extent = (left, left + width, top + height, top)
    axes.imshow(pixels, extent=extent, alpha=alpha, interpolation="none", aspect="auto")


def _write(axes: Axes, left: float, top: float, text: str, **style: object) -> None:
    if text:
        axes.text(left, top, plot.plain(text), **{"va": "top", **style})


def _wrapped(caption: ShownCaption, width: float) -> list[str]:
    """Lines of a caption, `width` inches long, at most MAX_LINES."""
    text = f"{'✓' if caption.option.is_correct else '✗'} {' '.join(caption.option.caption.split())}"
    return textwrap.wrap(text, max(10, int(width / 0.075)), max_lines=MAX_LINES, placeholder=" …")


def _short(token: str, most: int = 14) -> str:
    token = str(token)
    return token if len(token) <= most else f"{token[: most - 1]}…"


def _small(pixels: np.ndarray) -> np.ndarray:
    picture = Image.fromarray(pixels)
    picture.thumbnail((MAX_SIDE, MAX_SIDE))
    return np.asarray(picture)

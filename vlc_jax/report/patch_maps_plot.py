"""The figure of an example's maps: one panel measured in inches from its top left corner."""

import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.ticker import MaxNLocator
from PIL import Image

from vlc_jax.report import plot
from vlc_jax.report.patch_maps import KINDS, Chosen, Maps

WIDTH, MARGIN = 10.4, 0.06  # of the figure, and at its upper and left edge
SCALE, GAP, SPACE = 0.95, 0.3, 0.08  # for the scale at the right; between columns, between words
LINE, ROW = 0.17, 0.16  # heights of a line of text and of a token
PANEL, WORD, LABELS = 2.0, 0.7, 0.95  # sides of pictures; room for tokens beside their rows
MAX_LINES, MAX_WORDS = 4, 5
MAX_SIDE = 112  # pixels of a picture under a map
COLOURS, OPACITY = "viridis", 0.65


def draw(name: str, maps: Maps, chosen: Sequence[Sequence[Chosen]]) -> plot.Picture | None:
    """The maps of each image for its chosen captions, all on one scale; None if there are none."""
    used = [maps.values[k, c.place] for k, some in enumerate(chosen) for c in some]
    if not used:
        return None
    norm = Normalize(min(x.min() for x in used), max(x.max() for x in used))
    rows = [_Row(maps, k, some, norm) for k, some in enumerate(chosen) if some]
    height = MARGIN + sum(row.height for row in rows)
    scale, title = KINDS[maps.kind]

    def paint(axes: Axes) -> None:
        top = MARGIN
        for row in rows:
            row.paint(axes, top)
            top += row.height
        left = max(row.right for row in rows) + GAP
        _paint_scale(axes, norm, scale, left, min(height - 0.6, 2.4))

    captions = "; ".join(repr(c.option.caption) for some in chosen for c in some)
    words = f"The {scale}, from {norm.vmin:.3g} to {norm.vmax:.3g}, for {captions}."
    return plot.panel(name, title, words, (WIDTH, height), paint)


class _Row:
    """One image, and a column for each caption: a map over the image, or those of its tokens."""

    def __init__(self, maps: Maps, image: int, chosen: Sequence[Chosen], norm: Normalize):
        self.maps, self.chosen, self.norm = maps, chosen, norm
        self.values = maps.values[image]
        self.picture = _small(maps.pixels[image])
        self.has_tokens = maps.tokens is not None
        room, columns = WIDTH - SCALE - MARGIN, len(chosen) + (not self.has_tokens)
        self.column = (room - GAP * (columns - 1)) / columns
        if not self.has_tokens:
            self.column = min(self.column, PANEL)
        self.right = MARGIN + columns * (self.column + GAP) - GAP
        self.titles = [_wrapped(c, self.column) for c in chosen]
        self.title = LINE * max(len(lines) for lines in self.titles) + SPACE
        body = self.column
        if self.has_tokens:
            body = LINE + WORD + GAP / 2 + ROW * max(self._length(c) for c in chosen) + 0.25
        self.height = self.title + body + 0.15

    def paint(self, axes: Axes, top: float) -> None:
        """Draws the row, `top` inches below the upper edge."""
        left, below = MARGIN, top + self.title
        if not self.has_tokens:
            self._paint_image(
                axes, left, below, self.column, None, "the image as the model gets it"
            )
            left += self.column + GAP
        for c, lines in zip(self.chosen, self.titles, strict=True):
            colour = plot.THEME["green" if c.option.is_correct else "red"]
            _write(axes, left, top, "\n".join(lines), color=colour, fontsize=9)
            values = self.values[c.place]
            if self.has_tokens:
                self._paint_tokens(axes, left, below + LINE, c, values)
            else:
                self._paint_image(axes, left, below, self.column, values)
            left += self.column + GAP

    def _paint_image(
        self, axes: Axes, left: float, top: float, side: float,
        values: np.ndarray | None, label: str = "",
    ) -> None:  # fmt: skip
        """The picture, in colour or, under the values of its patches, grey; a label above it."""
        place = (left, top, side, side)
        if values is None:
            _show(axes, self.picture, place)
        else:
            _show(
                axes, np.asarray(Image.fromarray(self.picture).convert("L").convert("RGB")), place
            )
            _show(axes, self._coloured(self.maps.over_image(values)), place, alpha=OPACITY)
        _write(axes, left, top - LINE, label, color=plot.THEME["muted"], fontsize=8)

    def _paint_tokens(
        self, axes: Axes, left: float, top: float, chosen: Chosen, values: np.ndarray
    ) -> None:
        """Words over the picture, and below them all tokens against all image tokens."""
        tokens = [_short(token) for token in self.maps.tokens[chosen.place]]
        self._paint_image(axes, left, top, WORD, None, "image")
        fitting = int((self.column + SPACE) / (WORD + SPACE)) - 1
        for k, place in enumerate(chosen.words[: min(fitting, MAX_WORDS)]):
            x = left + (k + 1) * (WORD + SPACE)
            self._paint_image(axes, x, top, WORD, values[:, place], tokens[place])
        top, left, width = top + WORD + GAP / 2, left + LABELS, self.column - LABELS
        length = self._length(chosen)
        bottom = top + ROW * length
        _show(axes, self._coloured(values[:, :length].T), (left, top, width, ROW * length))
        for k, is_word in enumerate(self.maps.is_word[chosen.place, :length]):
            style = {"fontweight": "bold" if is_word else "normal", "fontsize": 8}
            place = (left - SPACE, top + ROW * (k + 0.5))
            _write(axes, *place, tokens[k], ha="right", va="center", **style)
        first = int(self.maps.has_class_token)
        starts = np.arange(first, len(values), self.maps.side) * width / len(values) + left
        axes.vlines(starts, bottom, bottom + 0.05, color=plot.THEME["muted"], linewidth=0.8)
        words = f"{'class token, then ' if first else ''}patches, a tick at each row of the image"
        _write(axes, left, bottom + 0.08, words, color=plot.THEME["muted"], fontsize=8)

    def _length(self, chosen: Chosen) -> int:
        """Tokens up to the end of the caption."""
        return int(np.count_nonzero(self.maps.tokens[chosen.place] != ""))

    def _coloured(self, values: np.ndarray) -> np.ndarray:
        return colormaps[COLOURS](self.norm(values), bytes=True)[..., :3]


def _paint_scale(axes: Axes, norm: Normalize, words: str, left: float, height: float) -> None:
    """The colours and what they stand for."""
    top = GAP
    colours = colormaps[COLOURS](np.linspace(1, 0, 128), bytes=True)[:, None, :3]
    _show(axes, colours, (left, top, 0.13, height))
    muted = plot.THEME["muted"]
    for value in MaxNLocator(5).tick_values(norm.vmin, norm.vmax):
        if norm.vmin <= value <= norm.vmax and norm.vmax > norm.vmin:
            y = top + height * (1 - float(norm(value)))
            place = (left + 0.13 + SPACE / 2, y)
            _write(axes, *place, f"{value:.3g}", va="center", color=muted, fontsize=8)
    place = (left - SPACE / 2, top + height / 2)
    _write(axes, *place, words, rotation=90, ha="right", va="center", color=muted, fontsize=8)


def _show(
    axes: Axes, pixels: np.ndarray, place: tuple[float, float, float, float], alpha: float = 1.0
) -> None:
    """Pixels at (left, top, width, height)."""
    left, top, width, height = place
    extent = (left, left + width, top + height, top)
    axes.imshow(pixels, extent=extent, alpha=alpha, interpolation="none", aspect="auto")


def _write(axes: Axes, left: float, top: float, text: str, **style: object) -> None:
    if text:
        axes.text(left, top, plot.plain(text), **{"va": "top", **style})


def _wrapped(chosen: Chosen, width: float) -> list[str]:
    """The caption in lines of so many inches, cut after MAX_LINES."""
    text = f"{'✓' if chosen.option.is_correct else '✗'} {' '.join(chosen.option.caption.split())}"
    return textwrap.wrap(text, max(10, int(width / 0.075)), max_lines=MAX_LINES, placeholder=" …")


def _short(token: str, most: int = 14) -> str:
    token = str(token)
    return token if len(token) <= most else f"{token[: most - 1]}…"


def _small(pixels: np.ndarray) -> np.ndarray:
    picture = Image.fromarray(pixels)
    picture.thumbnail((MAX_SIDE, MAX_SIDE))
    return np.asarray(picture)

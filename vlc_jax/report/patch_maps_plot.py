"""Figure of the patch maps of an example: one panel, measured in inches from its top left."""

import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.ticker import MaxNLocator
from PIL import Image

from vlc_jax.report import plot
from vlc_jax.report.patch_maps import KINDS, Maps, ShownCaption

WIDTH, MARGIN = 10.4, 0.06  # width of the figure; margin at its top and left
SCALE, GAP = 0.95, 0.3  # width of the colour scale at the right; gap between columns
SPACE = 0.08  # gap between thumbnails
LINE, ROW = 0.17, 0.16  # heights of a line of text and of a token
PANEL, THUMBNAIL, LABELS = 2.0, 0.7, 0.95  # sides of pictures; width of token labels
MAX_LINES, MAX_THUMBNAILS = 4, 5
MAX_SIDE = 112  # pixels of the image under a map; more would only enlarge the SVG
# viridis: lightness increases with the value, so it is readable without colour vision
COLOURS, OPACITY = "viridis", 0.65


def draw(name: str, maps: Maps, captions: Sequence[Sequence[ShownCaption]]) -> plot.Picture | None:
    """Figure of the maps of every image for its chosen captions; None without captions.

    All maps share one colour scale, so that captions can be compared.
    """
    used = [maps.values[k, c.index] for k, of_image in enumerate(captions) for c in of_image]
    if not used:
        return None
    norm = Normalize(min(x.min() for x in used), max(x.max() for x in used))
    rows = [_Row(maps, k, of_image, norm) for k, of_image in enumerate(captions) if of_image]
    height = MARGIN + sum(row.height for row in rows)
    scale, title = KINDS[maps.kind]

    def paint(axes: Axes) -> None:
        top = MARGIN
        for row in rows:
            row.paint(axes, top)
            top += row.height
        left = max(row.right for row in rows) + GAP
        _paint_scale(axes, norm, scale, left, min(height - 0.6, 2.4))

    quoted = "; ".join(repr(c.option.caption) for of_image in captions for c in of_image)
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

"""The figure of an example's maps: panels at places of their own, in inches from the top left."""

import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from PIL import Image

from vlc_jax.report import plot
from vlc_jax.report.maps import KINDS, Chosen, Maps

WIDTH, SCALE, GAP = 10.4, 0.95, 0.3  # of the figure, of the scale at its right, between columns
LINE, ROW, PANEL, WORD, SPACE = 0.17, 0.16, 2.0, 0.78, 0.08  # heights and sides
LABELS = 0.95  # room for tokens at the left of their rows
MAX_LINES, MAX_WORDS = 3, 5
MAX_SIDE = 112  # pixels of a picture under a map
COLOURS, OPACITY = "viridis", 0.65


def draw(name: str, maps: Maps, chosen: Sequence[Sequence[Chosen]]) -> plot.Picture | None:
    """The maps of each image for its chosen captions, all on one scale; None if there are none."""
    used = [maps.values[k, c.place] for k, some in enumerate(chosen) for c in some]
    if not used:
        return None
    norm = Normalize(min(x.min() for x in used), max(x.max() for x in used))
    rows = [_Row(maps, k, some, norm) for k, some in enumerate(chosen) if some]
    height = sum(row.height for row in rows)

    def paint(figure: Figure) -> None:
        top = 0.0
        for row in rows:
            row.paint(figure, top)
            top += row.height
        _scale(figure, norm, scale)

    scale, title = KINDS[maps.kind]
    captions = "; ".join(repr(c.option.caption) for some in chosen for c in some)
    words = f"The {scale}, from {norm.vmin:.3g} to {norm.vmax:.3g}, for {captions}."
    return plot.panels(name, title, words, (WIDTH, height), paint)


class _Row:
    """One image: a column per caption, and in front of them, where there is one map a caption, the
    image itself.
    """

    def __init__(self, maps: Maps, image: int, chosen: Sequence[Chosen], norm: Normalize):
        self.maps, self.image, self.chosen, self.norm = maps, image, chosen, norm
        self.picture = _grey(maps.pixels[image])
        self.is_of_tokens = maps.tokens is not None
        room, columns = WIDTH - SCALE, len(chosen) + (not self.is_of_tokens)
        self.column = (room - GAP * (columns - 1)) / columns
        if not self.is_of_tokens:
            self.column = min(self.column, PANEL)
        self.titles = [_wrapped(c, self.column) for c in chosen]
        self.title = LINE * max(len(lines) for lines in self.titles) + 0.06
        body = self.column
        if self.is_of_tokens:
            body = LINE + WORD + GAP / 2 + ROW * max(self._length(c) for c in chosen) + 0.35
        self.height = self.title + body + 0.12

    def paint(self, figure: Figure, top: float) -> None:
        """Draws the row, `top` inches below the upper edge."""
        left = 0.0
        if not self.is_of_tokens:
            side = self.column
            self._panel(figure, left, top + self.title, side, None, "image, as the model gets it")
            left += side + GAP
        for c, lines in zip(self.chosen, self.titles, strict=True):
            colour = plot.THEME["green" if c.option.is_correct else "red"]
            _write(figure, left, top, "\n".join(lines), color=colour, fontsize=9)
            below = top + self.title
            values = self.maps.values[self.image, c.place]
            if self.is_of_tokens:
                self._tokens(figure, left, below, c, values)
            else:
                self._panel(figure, left, below, self.column, values)
            left += self.column + GAP

    def _panel(
        self, figure: Figure, left: float, top: float, side: float,
        values: np.ndarray | None, label: str = "",
    ) -> None:  # fmt: skip
        """The picture, grey under values of its patches, in colour without; a label above."""
        axes = _axes(figure, left, top, side, side)
        axes.set_axis_off()
        place = {"extent": (0, 1, 1, 0), "interpolation": "none"}
        if values is None:
            axes.imshow(_small(self.maps.pixels[self.image]), **place)
        else:
            axes.imshow(self.picture, cmap="gray", vmin=0, vmax=255, **place)
            heat = self.maps.over_image(values)
            axes.imshow(heat, cmap=COLOURS, norm=self.norm, alpha=OPACITY, **place)
        if label:
            _write(figure, left, top - LINE, label, color=plot.THEME["muted"], fontsize=8)

    def _tokens(
        self, figure: Figure, left: float, top: float, chosen: Chosen, values: np.ndarray
    ) -> None:
        """Words over the picture, and below them all tokens against all image tokens."""
        top += LINE
        self._panel(figure, left, top, WORD, None, "image")
        fitting = int((self.column + SPACE) / (WORD + SPACE)) - 1
        for k, place in enumerate(chosen.words[: min(fitting, MAX_WORDS)]):
            label = _short(self.maps.tokens[chosen.place][place])
            x = left + (k + 1) * (WORD + SPACE)
            self._panel(figure, x, top, WORD, values[:, place], label)
        top += WORD + GAP / 2
        length = self._length(chosen)
        axes = _axes(figure, left + LABELS, top, self.column - LABELS, ROW * length)
        axes.imshow(
            values[:, :length].T, cmap=COLOURS, norm=self.norm, aspect="auto", interpolation="none"
        )
        tokens = self.maps.tokens[chosen.place][:length]
        axes.set_yticks(range(length), [_short(token) for token in tokens], fontsize=8)
        for text, is_word in zip(
            axes.get_yticklabels(), self.maps.is_word[chosen.place], strict=False
        ):
            text.set_color(plot.THEME["ink"])
            text.set_fontweight("bold" if is_word else "normal")
        first = int(self.maps.has_class_token)
        starts = np.arange(first, len(values), self.maps.side)
        axes.set_xticks(starts - 0.5, [""] * len(starts))
        axes.tick_params(length=3)
        for spine in axes.spines.values():
            spine.set_visible(False)
        before = "class token, then " if first else ""
        axes.set_xlabel(f"{before}patches, row by row", fontsize=8, labelpad=1)

    def _length(self, chosen: Chosen) -> int:
        """Tokens up to the end of the caption."""
        return int(np.count_nonzero(self.maps.tokens[chosen.place] != ""))


def _scale(figure: Figure, norm: Normalize, words: str) -> None:
    height = figure.get_figheight()
    axes = _axes(figure, WIDTH - SCALE + 0.3, 0.3, 0.13, min(height - 0.6, 2.4))
    bar = figure.colorbar(ScalarMappable(norm, COLOURS), cax=axes)
    bar.outline.set_visible(False)
    axes.tick_params(labelsize=8, length=2)
    axes.set_ylabel(words, fontsize=8)


def _axes(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    total = figure.get_figheight()
    box = (left / WIDTH, 1 - (top + height) / total, width / WIDTH, height / total)
    return figure.add_axes(box)


def _write(figure: Figure, left: float, top: float, text: str, **style: object) -> None:
    figure.text(left / WIDTH, 1 - top / figure.get_figheight(), plot.plain(text), va="top", **style)


def _wrapped(chosen: Chosen, width: float) -> list[str]:
    """The caption in lines of so many inches, cut after MAX_LINES."""
    text = f"{'✓' if chosen.option.is_correct else '✗'} {' '.join(chosen.option.caption.split())}"
    return textwrap.wrap(text, max(10, int(width / 0.075)), max_lines=MAX_LINES, placeholder=" …")


def _short(token: str, most: int = 14) -> str:
    token = plot.plain(str(token))
    return token if len(token) <= most else f"{token[: most - 1]}…"


def _small(pixels: np.ndarray) -> np.ndarray:
    picture = Image.fromarray(pixels)
    picture.thumbnail((MAX_SIDE, MAX_SIDE))
    return np.asarray(picture)


def _grey(pixels: np.ndarray) -> np.ndarray:
    return np.asarray(Image.fromarray(_small(pixels)).convert("L"))

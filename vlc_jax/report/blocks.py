"""Content of a page: blocks, which to_html, to_markdown and to_terminal render.

Texts are from data, and each renderer escapes them for its form. A further form of tables, such as
CSV or LaTeX, is one more renderer.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # a table on a terminal needs no matplotlib
    from vlc_jax.report.examples import Case
    from vlc_jax.report.plot import Picture
    from vlc_jax.report.table import Row


class Span(NamedTuple):
    """A piece of text. style: words of report.css, such as "bold", "code" or a verdict."""

    text: str
    style: str = ""


class Gauge(NamedTuple):
    """A value on a scale from 0 to 1, drawn in HTML only."""

    row: "Row"
    text: str = ""
    style: str = ""


Content = str | Span | Gauge | list[str | Span]
BREAK = Span(" ", "break")  # of a line; a space where there is no room for lines


class Heading(NamedTuple):
    """A title; level 1 is that of the page."""

    content: Content
    level: int = 2


class Text(NamedTuple):
    """A paragraph; style "pre": lines for a shell."""

    content: Content
    style: str = ""


class Table(NamedTuple):
    """Cells below a header; the first `left` columns are aligned left, all others right.

    style: "results": rows of the same name belong together; "runs": the last columns are of runs;
    "facts": pairs of a name and a value, without a header.
    """

    header: Sequence[Content]
    rows: Sequence[Sequence[Content]]
    left: int = 1
    style: str = ""
    caption: str = ""


class Figures(NamedTuple):
    """Pictures; style: "wide", one below the other, "small", or "" in between."""

    pictures: "Sequence[Picture]"
    style: str = ""


class Cases(NamedTuple):
    """Cases of a benchmark: images with scored captions."""

    cases: "Sequence[Case]"


class Details(NamedTuple):
    """Blocks that HTML folds. is_long: that Markdown leaves out."""

    summary: str
    blocks: "Sequence[Block]"
    is_long: bool = False


Block = Heading | Text | Table | Figures | Cases | Details


def spans(content: Content) -> list[Span | Gauge]:
    """The pieces of a text."""
    parts = content if isinstance(content, list) else [content]
    return [Span(part) if isinstance(part, str) else part for part in parts]


def plain(content: Content) -> str:
    """A text without its styles."""
    return "".join(span.text for span in spans(content))


def without_gauges(table: Table) -> Table:
    """The table without columns that are drawn."""
    drawn = {k for row in table.rows for k, cell in enumerate(row) if isinstance(cell, Gauge)}
    all_rows = (table.header, *table.rows)
    header, *rows = ([cell for k, cell in enumerate(row) if k not in drawn] for row in all_rows)
    return table._replace(header=header, rows=rows)


def pictures(blocks: "Iterable[Block]") -> "Iterator[Picture]":
    """The pictures of a page."""
    for block in blocks:
        if isinstance(block, Figures):
            yield from block.pictures
        elif isinstance(block, Cases):
            yield from (case.maps for case in block.cases if case.maps)

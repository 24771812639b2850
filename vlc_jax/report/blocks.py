"""Content of a page: blocks, which to_html, to_markdown and to_terminal render.

Texts are from data, and each renderer escapes them for its form. A further form of tables, such as
CSV or LaTeX, is one more renderer.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple


class Span(NamedTuple):
    """A piece of text. style: words of report.css, such as "bold", "code" or a verdict.

    gauge: a row of results (`table.Row`) that HTML also draws, on a scale from 0 to 1.
    """

    text: str
    style: str = ""
    gauge: Any = None


Content = str | Span | list[str | Span]
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
    """Pictures (`plot.Picture`); style: "wide", one below the other, "small", or "" in between."""

    pictures: Sequence[Any]
    style: str = ""


class Cases(NamedTuple):
    """Cases of a benchmark (`examples.Case`): images with scored captions."""

    cases: Sequence[Any]


class Details(NamedTuple):
    """Blocks that HTML folds. is_long: that Markdown leaves out."""

    summary: str
    blocks: "Sequence[Block]"
    is_long: bool = False


Block = Heading | Text | Table | Figures | Cases | Details


def spans(content: Content) -> list[Span]:
    """The pieces of a text."""
    parts = content if isinstance(content, list) else [content]
    return [Span(part) if isinstance(part, str) else part for part in parts]


def plain(content: Content) -> str:
    """A text without its styles."""
    return "".join(span.text for span in spans(content))

"""Markdown of blocks; pictures are files beside the page."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from vlc_jax.report import blocks
from vlc_jax.report.examples import Case

PER_LINE = {"wide": 1, "": 2, "small": 3}  # figures beside each other


def render(content: Iterable[blocks.Block], figures: Path) -> str:
    """Markdown of blocks, without long details, for a page beside the folder `figures`, into which
    pictures are written."""
    return "\n\n".join(filter(None, (_block(block, figures) for block in content)))


def _block(block: blocks.Block, figures: Path) -> str:
    match block:
        case blocks.Heading(content, level):
            return f"{'#' * level} {_inline(content)}"
        case blocks.Text(content, "pre"):
            text = blocks.plain(content)
            # longer than any fence in the text
            fence = "`" * (1 + max([2, *map(len, re.findall("`+", text))]))
            return f"{fence}\n{text}\n{fence}"
        case blocks.Text(content, style):
            return f"**{_inline(content)}**" if style == "bad" else _inline(content)
        case blocks.Table(style="facts"):
            return "\n".join(f"- {': '.join(map(_inline, row))}" for row in block.rows)
        case blocks.Table():
            return table(block)
        case blocks.Figures(pictures, style):
            links, number = [_link(each, figures) for each in pictures], PER_LINE[style]
            lines = (links[n : n + number] for n in range(0, len(links), number))
            return "\n\n".join(map(" ".join, lines))
        case blocks.Cases(cases):
            return "\n\n".join(_case(case, figures) for case in cases)
        case blocks.Details(summary, inner, is_long):
            return "" if is_long else f"{escape(summary)}:\n\n{render(inner, figures)}"


def table(block: blocks.Table) -> str:
    """A table with its caption; every row has its name."""
    header, *rows = ([*map(_inline, row)] for row in (block.header, *block.rows))
    text = markdown_table(header, rows, block.left)
    return f"{text}\n\n{escape(block.caption)}" if block.caption else text


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], left: int) -> str:
    """Table of cells in Markdown; `left` columns are aligned left, all others right."""
    rule = "|" + "---|" * left + "---:|" * (len(header) - left)
    lines = [f"| {' | '.join(cells)} |" for cells in (header, *rows)]
    return "\n".join([lines[0], rule, *lines[1:]])


def escape(text: str) -> str:
    """Text escaped for a paragraph, or a cell of a table."""
    # the backslash first: later ones are our own escapes
    for sign in "\\|`*_<>[]":
        text = text.replace(sign, f"\\{sign}")
    return re.sub(r"\s+", " ", text)


def _inline(content: blocks.Content) -> str:
    return "".join(map(_span, blocks.spans(content))).strip()


def _span(span: blocks.Span) -> str:
    words = span.style.split()
    # nothing is escaped in code, where a "|" would end the cell of a table
    if "code" in words and not re.search(r"[`|\\\n]", span.text):
        return f"`{span.text}`"
    text = escape(span.text)
    return f"**{text}**" if text and {"bold", "pill"} & {*words} else text


def _link(picture: Any, figures: Path) -> str:
    picture.write(figures)
    return f"![{escape(picture.description)}]({quote(f'{figures.name}/{picture.name}.svg')})"


def _case(case: Case, figures: Path) -> str:
    parts = []
    for image in case.images:
        file = quote(image.file.relative_to(figures.parent).as_posix())
        parts.append(f"![{escape(case.name)}]({file}) {'right' if image.is_right else 'wrong'}")
        answer = f" “{escape(image.answer)}”" if image.answer else ""
        parts.append(f"{escape(image.question)}{answer}")
        lines = []
        for option in image.options:
            caption = _span(blocks.Span(option.caption.strip(), "bold" * option.is_chosen))
            lines.append(f"- {option.score:.3f} {'✓ ' * option.is_correct}{caption}")
        parts.append("\n".join(lines))
    return "\n\n".join(filter(None, [*parts, case.maps and _link(case.maps, figures)]))

"""HTML of blocks: pages that need no other file and no network, styled by report.css."""

import base64
import string
from collections.abc import Iterable
from html import escape
from pathlib import Path

from vlc_jax.report import blocks
from vlc_jax.report.examples import Case, Option, ScoredImage
from vlc_jax.report.table import Row

FOLDER = Path(__file__).parent
TAGS = {"bold": "b", "code": "code"}  # other words of styles are classes
SMALL = 128  # pixels up to which an image is enlarged without blur


def page(title: str, content: Iterable[blocks.Block]) -> str:
    """A page with its style."""
    return fill("page.html", title=escape(title), style=read("report.css"), content=render(content))


def fill(name: str, **parts: str) -> str:
    """The file `name` of this folder with HTML in place of its $names."""
    return string.Template(read(name)).substitute(parts)


def read(name: str) -> str:
    """A file of this folder."""
    return (FOLDER / name).read_text("utf-8")


def render(content: Iterable[blocks.Block]) -> str:
    """HTML of blocks."""
    return "\n".join(map(_block, content))


def _block(block: blocks.Block) -> str:
    match block:
        case blocks.Heading(content, level):
            return _tag(f"h{level}", _inline(content))
        case blocks.Text(content, "pre"):
            return _tag("pre", _inline(content))
        case blocks.Text(content, style):
            return _tag("p", _inline(content), style)
        case blocks.Table():
            note = _tag("p", escape(block.caption), "muted") if block.caption else ""
            return note + _tag("div", _tag("table", _rows(block), block.style), "scroll")
        case blocks.Figures(pictures, style):
            kind = "scroll wide" if style == "wide" else f"figures {style}"
            return _tag("div", "\n".join(_tag("figure", each.svg) for each in pictures), kind)
        case blocks.Cases(cases):
            return _tag("div", "\n".join(map(_case, cases)), "examples")
        case blocks.Details(summary, inner):
            return _tag("details", f"{_tag('summary', escape(summary))}\n{render(inner)}")


def _tag(name: str, inner: str, style: str = "", label: str = "") -> str:
    """An element with HTML inside. style: its classes. label: of a cell, its column."""
    style = f' class="{escape(style.strip())}"' if style.strip() else ""
    label = f' data-label="{escape(label)}"' if label else ""
    return f"<{name}{style}{label}>{inner}</{name}>"


def _inline(content: blocks.Content) -> str:
    return "".join(map(_span, blocks.spans(content)))


def _span(span: blocks.Span) -> str:
    if span == blocks.BREAK:
        return " <br>"
    words = span.style.split()
    name = next((TAGS[word] for word in words if word in TAGS), "span" if words else "")
    text = escape(span.text)
    if name:
        text = _tag(name, text, " ".join(word for word in words if word not in TAGS))
    return text + (_gauge(span.gauge) if span.gauge else "")


def _gauge(row: Row) -> str:
    if row.unit != "fraction":
        return '<span class="gauge empty"></span>'

    def mark(style: str, left: float, width: float | None = None) -> str:
        size = "" if width is None else f";width:{100 * width:.2f}%"
        return f'<i class="{style}" style="left:{100 * left:.2f}%{size}"></i>'

    has_band = row.low is not None and row.high is not None
    marks = mark("band", row.low, row.high - row.low) if has_band else ""
    places = {"tick": row.chance, "tick blind": row.blind, "dot": row.value}
    marks += "".join(mark(style, at) for style, at in places.items() if at is not None)
    return f'<span class="gauge {row.verdict}" aria-hidden="true">{marks}</span>'


def _rows(table: blocks.Table) -> str:
    """Header and rows; in results, rows of the same name are kept together and named once."""
    header = "".join(_cell(table, k, name, "th") for k, name in enumerate(table.header))
    rows = [f"<thead><tr>{header}</tr></thead>"] if header else []
    names = [blocks.plain(row[0]) for row in table.rows]
    for n, row in enumerate(table.rows):
        cells, style = [_cell(table, k, cell) for k, cell in enumerate(row)], ""
        if "results" in table.style:
            style = "more" if names[n : n + 1] == names[n + 1 : n + 2] else ""
            cells[0] = "<td></td>" if n and names[n - 1] == names[n] else cells[0]
        rows.append(_tag("tr", "".join(cells), style))
    return "\n".join(rows)


def _cell(table: blocks.Table, k: int, cell: blocks.Content, name: str = "td") -> str:
    if k < table.left:
        return _tag(name, _inline(cell))
    # on a phone the name of a column stands before its value
    style = "right none" if cell == "–" else "right"
    return _tag(name, _inline(cell), style, blocks.plain(table.header[k]) * (name == "td"))


def _case(case: Case) -> str:
    outcome, style = ("✓ right", "right-answer") if case.is_right else ("✗ wrong", "wrong-answer")
    facts = escape(" · ".join(["", case.name, *filter(None, [", ".join(case.groups)])]))
    parts = [_tag("header", _tag("b", outcome) + facts)]
    parts += [_image(f"image {k} of case {case.name}", x) for k, x in enumerate(case.images, 1)]
    if case.maps:
        parts.append(_tag("div", _tag("figure", case.maps.svg), "scroll wide"))
    return _tag("div", "\n".join(parts), f"example {style}{' with-map' if case.maps else ''}")


def _image(name: str, image: ScoredImage) -> str:
    content = image.file.read_bytes()
    # the width in the header of a PNG
    width = int.from_bytes(content[16:20], "big") if content[:4] == b"\x89PNG" else 0
    style = ' class="pixels"' if width <= SMALL else ""
    source = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    texts = [_tag("p", escape(image.question), "muted")] if image.question else []
    texts += [_tag("p", escape(f"“{image.answer}”"))] if image.answer else []
    inner = "\n".join([*texts, _tag("ol", "\n".join(map(_option, image.options)))])
    img = f'<img src="{source}" alt="{escape(name)}"{style}>'
    return _tag("div", f"{img}\n{_tag('div', inner)}", "scored")


def _option(option: Option) -> str:
    style = "correct" if option.is_correct else "mistake" if option.is_chosen else ""
    mark = {"correct": "✓", "mistake": "✗", "": ""}[style]
    texts = _tag("span", mark, "mark") + _tag("span", f"{option.score:.3f}", "score")
    bar = f'<i class="fill" style="width:{100 * option.share:.1f}%"></i>'
    style += " chosen" if option.is_chosen else ""
    return _tag("li", bar + texts + _tag("span", escape(option.caption)), style)

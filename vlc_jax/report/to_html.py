"""HTML of blocks: pages that need no other file and no network, styled by report.css."""

import base64
import string
from collections.abc import Iterable
from html import escape
from pathlib import Path

from vlc_jax.report import blocks
from vlc_jax.report.blocks import plain
from vlc_jax.report.examples import Case, Option, ScoredImage

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


def _span(span: blocks.Span | blocks.Gauge) -> str:
    if isinstance(span, blocks.Gauge):
        return _gauge(span)
    if span == blocks.BREAK:
        return " <br>"
    words = span.style.split()
    name = next((TAGS[word] for word in words if word in TAGS), "span" if words else "")
    classes = " ".join(word for word in words if word not in TAGS)
    return _tag(name, escape(span.text), classes) if name else escape(span.text)


def _gauge(gauge: blocks.Gauge) -> str:
    row = gauge.row
    marks = {"tick": row.chance, "tick blind": row.blind, "dot": row.value}
    drawn = [
        f'<i class="{style}" style="left:{100 * place:.2f}%"></i>'
        for style, place in marks.items()
        if place is not None
    ]
    if row.low is not None and row.high is not None:
        place = f"left:{100 * row.low:.2f}%;width:{100 * (row.high - row.low):.2f}%"
        drawn.insert(0, f'<i class="band" style="{place}"></i>')
    return f'<div class="gauge {row.verdict}" aria-hidden="true">{"".join(drawn)}</div>'


def _rows(table: blocks.Table) -> str:
    """Header and rows; in results, rows of the same name are kept together and named once."""
    sides = ["" if k < table.left else "right" for k in range(len(table.header))]
    header = "".join(map(_tag, ["th"] * len(sides), map(_inline, table.header), sides))
    names = [plain(row[0]) if "results" in table.style else n for n, row in enumerate(table.rows)]
    rows = [f"<thead><tr>{header}</tr></thead>"] if header else []
    for n, row in enumerate(table.rows):
        is_more = names[n : n + 1] == names[n + 1 : n + 2]
        cells = [_cell(table, k, cell) for k, cell in enumerate(row)]
        if n and names[n] == names[n - 1]:
            cells[0] = "<td></td>"
        rows.append(_tag("tr", "".join(cells), "more" if is_more else ""))
    return "\n".join(rows)


def _cell(table: blocks.Table, k: int, cell: blocks.Content) -> str:
    if k < table.left:
        return _tag("td", _inline(cell))
    style = "of-gauge" if isinstance(cell, blocks.Gauge) else "right"
    # on a phone the name of a column stands before its value
    style += " none" if cell == "–" else ""
    return _tag("td", _inline(cell), style, plain(table.header[k]))


def _case(case: Case) -> str:
    outcome = _tag("b", "✓ right" if case.is_right else "✗ wrong")
    facts = [outcome, escape(case.name), *([escape(", ".join(case.groups))] if case.groups else [])]
    images = [_image(case, k, image) for k, image in enumerate(case.images, 1)]
    if case.maps:
        images.append(_tag("div", _tag("figure", case.maps.svg), "scroll wide"))
    style = f"example {'right' if case.is_right else 'wrong'}-answer"
    inner = "\n".join([_tag("header", " · ".join(facts)), *images])
    return _tag("div", inner, f"{style} with-map" if case.maps else style)


def _image(case: Case, k: int, image: ScoredImage) -> str:
    content = image.file.read_bytes()
    # the width in the header of a PNG
    width = int.from_bytes(content[16:20], "big") if content[:4] == b"\x89PNG" else 0
    style = ' class="pixels"' if width <= SMALL else ""
    source = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    name = escape(f"image {k} of case {case.name}")
    texts = [_tag("p", escape(image.question), "muted")] if image.question else []
    texts += [_tag("p", escape(f"“{image.answer}”"))] if image.answer else []
    options = _tag("ol", "\n".join(map(_option, image.options)))
    inner = _tag("div", "\n".join([*texts, options]))
    return _tag("div", f'<img src="{source}" alt="{name}"{style}>\n{inner}', "scored")


def _option(option: Option) -> str:
    style = "correct" if option.is_correct else "mistake" if option.is_chosen else ""
    mark = {"correct": "✓", "mistake": "✗", "": ""}[style]
    texts = _tag("span", mark, "mark") + _tag("span", f"{option.score:.3f}", "score")
    texts += _tag("span", escape(option.caption))
    bar = f'<i class="fill" style="width:{100 * option.share:.1f}%"></i>'
    return _tag("li", bar + texts, f"{style}{' chosen' if option.is_chosen else ''}")

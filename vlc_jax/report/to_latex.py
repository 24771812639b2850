"""LaTeX of tables, for pdflatex with the package booktabs."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, zip_longest

from vlc_jax.report import blocks
from vlc_jax.report.blocks import BREAK, Content, Span, Table

NAMES = {"\\": "backslash", "^": "asciicircum", "~": "asciitilde", "`": "asciigrave"}
NAMES |= {"<": "less", ">": "greater", "|": "bar"}
SIGNS = {
    **{sign: f"\\{sign}" for sign in "#$%&_{}"},
    **{sign: rf"\text{name}{{}}" for sign, name in NAMES.items()},
    "-": "-{}",  # no dash of two, no ligature
    "[": "{[}",  # nor an option of the command before it
    "*": "{*}",
    "±": r"$\pm$",
    "–": "--",
    "−": "$-$",
    "→": r"$\to$",
    "↓": r"$\downarrow$",
    "≈": r"$^\approx$",
    "≺": r"$^\prec$",
    "≠": r"$^\neq$",
    "◇": r"$^\dagger$",
    "◆": r"$^\ddagger$",
}
# letters of its standard encoding
LATIN = re.compile("[ -~À-ÖØ-öø-ÿ]")
WRAP = 9  # characters of a header's line per column


def render(tables: Sequence[Table]) -> str:
    """A table environment of tables below one another; their captions are its caption."""
    lines = [r"% \usepackage{booktabs}", r"\begin{table}", r"\centering"]
    caption = " ".join(escape(table.caption) for table in tables if table.caption)
    lines += [rf"\caption{{{caption}}}", r"\label{tab:results}", r"\smallskip"]
    lines += [r"\footnotesize", r"\setlength{\tabcolsep}{3pt}"]
    for number, table in enumerate(tables):
        lines += [*(["", r"\medskip"] if number else []), *_tabular(table)]
    return "\n".join([*lines, r"\end{table}"])


def _tabular(table: Table) -> Iterator[str]:
    kinds = "l" * table.left + "r" * (len(table.header) - table.left)
    yield rf"\begin{{tabular}}{{{kinds}}}"
    yield r"\toprule"
    yield from _header(table)
    # rows whose names have the same style stand together
    for _, rows in groupby(table.rows, lambda row: blocks.spans(row[0])[0].style):
        rule = r"\midrule"
        for row in rows:
            cells = [["".join(map(_span, part)) for part in _parts(cell)] for cell in row]
            lines = [*zip_longest(*cells, fillvalue="")]
            yield from filter(None, [rule, *map(_row, lines)])
            # between rows of several lines
            rule = r"\addlinespace" if len(lines) > 1 else ""
    yield r"\bottomrule"
    yield r"\end{tabular}"


def _header(table: Table) -> Iterator[str]:
    """Cells; of those with two parts, equal first parts beside each other are one."""
    cells = [[*map(blocks.plain, _parts(cell))] for cell in table.header]
    if any(len(cell) > 1 for cell in cells):
        tops, rules, start = [], [], 1
        for top, same in groupby(cells, lambda cell: cell[0] if len(cell) > 1 else ""):
            width = len([*same])
            lines = [rf"\multicolumn{{{width}}}{{c}}{{{x}}}" for x in _wrapped(top, width)]
            tops.append((lines, width))
            rules += [rf"\cmidrule(lr){{{start}-{start + width - 1}}}"] if top else []
            start += width
        yield from _bottom_aligned(tops)
        yield " ".join(rules)
    yield from _bottom_aligned([(_wrapped(cell[-1], 1), 1) for cell in cells])


def _wrapped(text: str, columns: int) -> list[str]:
    text, width = text.replace(" ↓", "\N{NO-BREAK SPACE}↓"), WRAP * columns
    lines = textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)
    return [escape(line) for line in lines] or [""]


def _bottom_aligned(cells: Sequence[tuple[list[str], int]]) -> Iterator[str]:
    """Rows of cells with several lines, and a width in columns."""
    height = max(len(lines) for lines, _ in cells)
    padded = [["&" * (width - 1)] * (height - len(lines)) + lines for lines, width in cells]
    yield from map(_row, zip(*padded, strict=True))


def _row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _parts(content: Content) -> list[list[Span]]:
    """The lines of a cell."""
    grouped = groupby(blocks.spans(content), lambda span: span == BREAK)
    return [[*spans] for is_break, spans in grouped if not is_break]


def _span(span: Span) -> str:
    text = escape(span.text)
    words = span.style.split()
    text = rf"\textbf{{{text}}}" if text and "bold" in words else text
    return rf"{{\scriptsize {text}}}" if text and "muted" in words else text


def escape(text: str) -> str:
    """Text without commands; a letter that pdflatex lacks becomes its code point."""
    text = re.sub(r"\s+", " ", text)
    return "".join(
        SIGNS.get(sign, sign if LATIN.match(sign) and sign not in "ÐðÞþ" else f"U+{ord(sign):04X}")
        for sign in text
    )

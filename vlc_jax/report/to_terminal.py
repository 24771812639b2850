"""Tables of blocks on a terminal."""

import rich.box
import rich.measure
import rich.table
from rich.text import Text

from vlc_jax.input_pipeline.commands import command_line
from vlc_jax.report.blocks import Content, Table, plain, spans, without_gauges

STYLES = {"at": "yellow", "below": "red", "blind": "magenta"}  # others have none
STYLES |= {"better": "green", "worse": "red", "other-cases": "yellow"}


def show(*parts: Table | str) -> None:
    """Prints tables and sentences."""
    for part in parts:
        if isinstance(part, Table):
            _print(part)
        else:
            command_line.console().print(part, markup=False, highlight=False, soft_wrap=True)


def _print(table: Table) -> None:
    """Prints a table at the width of the terminal, or wider if its lines need it: cut at 80
    characters, numbers would be lost. In tables of runs the cells are wrapped first."""
    output, console = to_rich(table), command_line.console()
    # A console narrower than its longest words would cut them; within its own width the measure of
    # a table is never larger.
    options = console.options.update(width=1000)
    needed = rich.measure.Measurement.get(console, options, output)
    width = max(needed.minimum if "runs" in table.style else needed.maximum, console.width)
    if width == needed.minimum:
        for column in output.columns:
            # Rich shares the little space unevenly, and cuts the last column
            column.width = column.min_width
    command_line.console(width).print(output)


def to_rich(table: Table) -> rich.table.Table:
    """The table as one of rich; in results, rows of the same name are named once."""
    shown = without_gauges(table)
    output = rich.table.Table(box=rich.box.SIMPLE_HEAD, padding=0, pad_edge=False)
    output.caption, output.caption_justify = Text(table.caption), "left"
    for k, name in enumerate(shown.header):
        # Text: brackets in a name would be parsed as markup
        output.add_column(Text(plain(name)), justify="left" if k < table.left else "right")
        column, texts = output.columns[k], [plain(name), *(plain(row[k]) for row in shown.rows)]
        if "runs" in table.style and k >= table.left:
            # Rich would wrap within words
            texts, column.overflow = [word for text in texts for word in text.split()], "fold"
        else:
            column.no_wrap = True
        column.min_width = max(map(len, texts), default=0)
    previous = None
    for row in shown.rows:
        name = plain(row[0])
        is_repeated = "results" in table.style and name == previous
        output.add_row(Text("" if is_repeated else name), *map(_text, row[1:]))
        previous = name
    return output


def _text(content: Content) -> Text:
    text = Text()
    for span in spans(content):
        text.append(
            span.text, " ".join(STYLES[word] for word in span.style.split() if word in STYLES)
        )
    return text

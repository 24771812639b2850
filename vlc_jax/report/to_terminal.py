"""Tables and sentences on a terminal."""

import rich.box
import rich.measure
import rich.table
from rich.text import Text

from vlc_jax.input_pipeline.commands import command_line
from vlc_jax.report.blocks import Content, Table, plain, spans

# others have none
STYLES = {"at": "yellow", "below": "red", "blind": "magenta", "below-blind": "magenta"}
STYLES |= {"better": "green", "worse": "red", "other-cases": "yellow"}


def show(*parts: Table | str) -> None:
    """Prints tables and sentences.

    A table has the width of the terminal, or more if its lines need it: cut at 80 characters,
    numbers would be lost. In tables of runs the cells are wrapped first.
    """
    console = command_line.console()
    for part in parts:
        if isinstance(part, str):
            console.print(part, markup=False, highlight=False, soft_wrap=True)
            continue
        output = to_rich(part)
        # A console narrower than its longest words would cut them; within its own width the measure
        # of a table is never larger.
        options = console.options.update(width=1000)
        needed = rich.measure.Measurement.get(console, options, output)
        width = max(needed.minimum if "runs" in part.style else needed.maximum, console.width)
        if width == needed.minimum:
            for column in output.columns:
                # Rich shares the little space unevenly, and cuts the last column
                column.width = column.min_width
        command_line.console(width).print(output)


def to_rich(table: Table) -> rich.table.Table:
    """The table as one of rich; in results, rows of the same name are named once."""
    output = rich.table.Table(box=rich.box.SIMPLE_HEAD, padding=0, pad_edge=False)
    output.caption, output.caption_justify = Text(table.caption), "left"
    for k, name in enumerate(table.header):
        # Text: brackets in a name would be parsed as markup
        output.add_column(Text(plain(name)), justify="left" if k < table.left else "right")
        column, texts = output.columns[k], [plain(name), *(plain(row[k]) for row in table.rows)]
        if "runs" in table.style and k >= table.left:
            # Rich would wrap within words
            texts, column.overflow = [word for text in texts for word in text.split()], "fold"
        else:
            column.no_wrap = True
        column.min_width = max(map(len, texts), default=0)
    previous = None
    for row in table.rows:
        is_repeated = "results" in table.style and plain(row[0]) == previous
        output.add_row("" if is_repeated else Text(plain(row[0])), *map(_text, row[1:]))
        previous = plain(row[0])
    return output


def _text(content: Content) -> Text:
    text = Text()
    for span in spans(content):
        text.append(span.text, next((STYLES[x] for x in span.style.split() if x in STYLES), None))
    return text

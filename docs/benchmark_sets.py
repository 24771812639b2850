"""The table of published sets in docs/benchmarks.md, from the Origin records of their readers.

  python docs/benchmark_sets.py

rewrites the part of the page between the two marks.
"""

from collections.abc import Mapping
from pathlib import Path

from vlc_jax.input_pipeline.benchmarks import PUBLISHED
from vlc_jax.input_pipeline.benchmarks.published import Origin

PAGE = Path(__file__).with_name("benchmarks.md")
START, END = "<!-- table: sets -->\n", "<!-- end -->\n"


HEAD = """\
| set | protocol | cases | annotations | images | source |
|---|---|---:|---|---|---|
"""


def table() -> str:
    """A row for each published set."""
    return HEAD + "".join(row(name, origin) for name, (_, origin) in PUBLISHED.items())


def row(name: str, origin: Origin) -> str:
    """Cases of subsets are added up; – where no number is published."""
    cases = origin.cases
    total = sum(cases.values()) if isinstance(cases, Mapping) else cases
    shown = "–" if total is None else f"{total:,}"
    images = "the same" if origin.images == origin.folder else f"`{origin.images}`"
    return (
        f"| `{name}` | `{origin.protocol}` | {shown} | `{origin.folder}` | {images} "
        f"| {origin.source} |\n"
    )


def rewritten(page: str) -> str:
    """The page with the table of the records."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text()))

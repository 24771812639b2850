"""The page "Config fields" of the site (`make site`), made of configs/default.py and its comments.

A hook of MkDocs, named in mkdocs.yml. Reads the source alone: the site's Python has no JAX.
"""

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

DEFAULT = Path(__file__).resolve().parents[1] / "configs" / "default.py"
PAGE = "fields.md"
START = """# Config fields

Every field with its default, made of the comments of `configs/default.py`. `--config.FIELD=VALUE`
sets one; `vlc-jax --list` names losses, heads, sources, tokenizers and benchmarks, and the options
of sources and tokenizers. A meaning also holds for the empty cells below it.
"""


class Field(NamedTuple):
    """A field: its dotted path, the source of its default, and its comments."""

    path: str
    default: str
    meaning: str


class Table(NamedTuple):
    """A table of fields that is being read: dotted path, comments that no field has yet, line."""

    path: str
    meaning: str
    line: int


def on_files(files: Any, config: Any) -> Any:
    """Adds the page to those of the site."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, PAGE, content=page(fields(DEFAULT.read_text("utf-8")))))
    return files


def fields(source: str) -> list[Field]:
    """All fields of a config file, in its order; the comment of a table is that of its first."""
    return [*Reader(source).fields()]


def page(rows: list[Field]) -> str:
    """The page in Markdown, a table for the run and each group of fields."""
    text, group = START, None
    for path, default, meaning in rows:
        first = path.partition(".")[0] if "." in path else "run"
        if first != group:
            text += f"\n## {first}\n\n| field | default | meaning |\n|---|---|---|\n"
            group = first
        cells = (f"`{path}`", f"`{default}`", meaning)
        text += f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"
    return text


class Reader:
    """Fields and comments of a config file."""

    def __init__(self, source: str) -> None:
        self._comments: dict[int, tuple[str, bool]] = {}  # line -> (text, is nothing else there)
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                text = token.string.removeprefix("#").strip()
                self._comments[token.start[0]] = text, token.line.lstrip().startswith("#")
        nodes = ast.parse(source).body
        self._functions = {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}

    def fields(self) -> Iterator[Field]:
        # the run's own fields first: a table of the page is one group
        named = []
        for node in self._functions["get_config"].body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
                meaning = self._meaning(node.lineno, node.value)
                table = Table(node.targets[0].attr, meaning, node.lineno)
                named += self._below(table, node.value, {})
        yield from sorted(named, key=lambda field: "." in field.path)

    def _below(self, table: Table, value: ast.expr, names: dict[str, ast.expr]) -> Iterator[Field]:
        """The fields of a value; `names`: arguments of the function that returns it."""
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            if value.func.id == "ConfigDict" and value.args:
                yield from self._below(table, value.args[0], names)
                return
            if value.func.id in self._functions:
                returned = self._functions[value.func.id].body[-1]
                assert isinstance(returned, ast.Return)
                keywords = {word.arg: word.value for word in value.keywords if word.arg}
                yield from self._below(table, returned.value or value, keywords)
                return
        if isinstance(value, ast.BinOp):
            for side in (value.left, value.right):
                yield from self._below(table, side, names)
        elif isinstance(value, ast.Dict) and value.keys:
            for key, item in zip(value.keys, value.values, strict=True):
                if isinstance(key, ast.Constant):
                    # a table of one line has one comment
                    own = "" if key.lineno == table.line else self._meaning(key.lineno, item)
                    both = " ".join(filter(None, (table.meaning, own)))
                    table = table._replace(meaning="")
                    below = Table(f"{table.path}.{key.value}", both, key.lineno)
                    yield from self._below(below, item, names)
        else:
            value = names.get(value.id, value) if isinstance(value, ast.Name) else value
            text = ast.unparse(value).replace("ConfigDict()", "{}")
            if text.startswith("placeholder("):  # a type without a value
                text = f"None ({text.removeprefix('placeholder(')}"
            yield Field(table.path, text, table.meaning)

    def _meaning(self, line: int, value: ast.expr) -> str:
        """The comments above a line, and at the end of its value."""
        first = line
        while self._comments.get(first - 1, ("", False))[1]:
            first -= 1
        lines = [self._comments[each][0] for each in range(first, line)]
        last = value.end_lineno or line
        if last in self._comments:
            lines.append(self._comments[last][0])
        return " ".join(lines)

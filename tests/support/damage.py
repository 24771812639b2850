"""Seeded damage to files of annotations: wrong types, nesting, cuts, flipped bits, huge fields."""

import copy
import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

# each would be read as itself somewhere: as a name, a number, a label or a caption
VALUES: tuple[Callable[[Any], Any], ...] = (
    lambda value: None,
    lambda value: True,
    lambda value: -1,
    lambda value: 10**30,
    lambda value: 0.5,
    lambda value: float("nan"),
    lambda value: float("inf"),
    lambda value: "",
    lambda value: " ",
    lambda value: "²",  # a digit that int() refuses
    lambda value: "nul\0",
    lambda value: "\ud800",  # half a surrogate pair, which no file name and no terminal takes
    lambda value: "x" * 200_000,  # longer than csv's limit of a field
    lambda value: "../" * 9 + "etc/passwd",
    lambda value: "/etc/passwd",
    lambda value: [],
    lambda value: {},
    lambda value: [value],
    lambda value: {"a": value},
    lambda value: str(value),
    lambda value: json.loads("[" * 300 + "]" * 300),
)


KINDS = ("json", "jsonl", "csv", "tsv", "parquet")  # of files


def damaged(path: Path, rng: np.random.Generator) -> bytes:
    """The bytes of a file with one thing wrong, by its suffix; often still well-formed."""
    data = path.read_bytes()
    if rng.random() < 0.3:
        return _bytes(data, rng)
    # POPE has objects line by line in .json
    is_lines = path.suffix == ".jsonl" or b"}\n{" in data
    if path.suffix == ".json" and not is_lines:
        return _encoded(_document(json.loads(data), rng))
    if is_lines:
        lines = data.splitlines()
        at = int(rng.integers(len(lines)))
        lines[at] = _encoded(_document(json.loads(lines[at]), rng))
        return b"\n".join(lines)
    if path.suffix in (".csv", ".tsv"):
        return _table(data, rng)
    if path.suffix == ".parquet":
        return _parquet(path, rng)
    return _bytes(data, rng)


def _encoded(document: Any) -> bytes:
    return json.dumps(document).encode()


def _value(value: Any, rng: np.random.Generator) -> Any:
    return VALUES[rng.integers(len(VALUES))](value)


def _document(document: Any, rng: np.random.Generator) -> Any:
    """A document with one value changed, dropped, renamed or repeated, at any depth."""
    if not isinstance(document, dict | list) or not document or rng.random() < 0.1:
        return _value(document, rng)
    document = copy.copy(document)
    keys = list(document) if isinstance(document, dict) else list(range(len(document)))
    key = keys[rng.integers(len(keys))]
    kind = rng.random()
    if kind < 0.08:
        del document[key]
    elif kind < 0.14 and isinstance(document, dict):
        document[str(_value(key, rng))] = document.pop(key)
    elif kind < 0.14:
        document.append(document[key])
    else:
        document[key] = _document(document[key], rng)
    return document


def _bytes(data: bytes, rng: np.random.Generator) -> bytes:
    at = int(rng.integers(len(data) + 1))
    match rng.integers(7):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + b"[" * 100_000
        case 2:
            return data[:at] + rng.bytes(8) + data[at:]
        case 3:
            return data[:at] + data[at + 1 :]
        case 4:
            return b"" if rng.random() < 0.5 else b"\xff\xfe" + data
        case 5:
            return data[:at] + b'"' + data[at:]
        case _:
            flipped = bytearray(data)
            for place in rng.integers(len(data), size=3):
                flipped[place] ^= 1 << int(rng.integers(8))
            return bytes(flipped)


def _table(data: bytes, rng: np.random.Generator) -> bytes:
    rows = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline="")))
    row = rows[rng.integers(len(rows))]
    at = int(rng.integers(len(row)))
    if rng.random() < 0.2:
        del row[at]
    else:
        value = _value(row[at], rng)
        row[at] = value if isinstance(value, str) else json.dumps(value)
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode("utf-8", "surrogatepass")


def _parquet(path: Path, rng: np.random.Generator) -> bytes:
    """A table with a column of another type, without a column, or with an empty cell."""
    import pyarrow
    from pyarrow import parquet

    table = parquet.read_table(path)
    at = int(rng.integers(table.num_columns))
    name = table.column_names[at]
    match rng.integers(5):
        case 0:
            table = table.drop_columns([name])
        case 1:
            table = table.set_column(at, name, pyarrow.array([7] * table.num_rows))
        case 2:
            table = table.set_column(at, name, pyarrow.array([[1, None]] * table.num_rows))
        case 3:
            table = table.set_column(at, name, pyarrow.nulls(table.num_rows))
        case _:
            cells = table.column(at).to_pylist()
            cells[rng.integers(len(cells))] = None
            table = table.set_column(at, name, pyarrow.array(cells, table.schema.field(at).type))
    file = io.BytesIO()
    parquet.write_table(table, file)
    return file.getvalue()

"""Keys of all rows of a table: 64-bit hashes of texts of the rows, cached in the table's index."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vlc_jax.input_pipeline import batch
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import tables

# key of an unreadable row; a text has it with a chance of 2**-64
UNREADABLE = np.uint64(0)
_FIRST_CHECK = 1 << 14  # rows

# (row, index of the row) -> text; raises DataError for a row without one.
Text = Callable[[dict[str, Any], int], str]
# gets the keys of the first rows, or of all; raises DataError for unusable ones.
Check = Callable[[np.ndarray], None]


def read(
    table: tables.Table, texts: Mapping[str, Text], checks: Mapping[str, Check] | None = None
) -> dict[str, np.ndarray]:
    """Keys of every row, uint64 (rows,) for each of the texts: `batch.hash_id` of the text.

    texts: name -> text. The name must contain everything that the text depends on besides the row:
    keys of this name are read from the table's index, and missing ones are computed in one pass.
    checks: name -> check of the keys, during the pass, which it can end, and of all.
    """
    checks = checks or {}
    columns = {name: _stored(table, name) for name in texts}
    missing = {name: texts[name] for name, keys in columns.items() if keys is None}
    if missing:
        columns |= _compute(table, missing, checks)
    for name, check in checks.items():
        check(columns[name])
    return columns


def _stored(table: tables.Table, name: str) -> np.ndarray | None:
    stored = None if table.index is None else table.index.read(name)
    return None if stored is None else stored["keys"]


def _compute(
    table: tables.Table, texts: Mapping[str, Text], checks: Mapping[str, Check]
) -> dict[str, np.ndarray]:
    computed = {name: np.full(len(table), UNREADABLE) for name in texts}
    next_check = _FIRST_CHECK
    for index, row in enumerate(table.rows()):
        if index == next_check:
            # when the rows have doubled: all checks together see each key about twice
            next_check *= 2
            for name in checks.keys() & computed.keys():
                checks[name](computed[name][:index])
        if row is None:
            continue
        for name, text in texts.items():
            try:
                computed[name][index] = batch.hash_id(text(row, index))
            except DataError:
                continue
    if table.index is not None:
        for name, keys in computed.items():
            table.index.write(name, keys=keys)
    return computed


def hashes(texts: Sequence[str]) -> np.ndarray:
    """The keys of texts, uint64 (texts,)."""
    return np.array([batch.hash_id(text) for text in texts], np.uint64)


def contains(keys: np.ndarray, text: str) -> bool:
    """True if any row has the key of this text."""
    return bool((keys == batch.hash_id(text)).any())


def first_repeated(keys: np.ndarray, rows: np.ndarray) -> int | None:
    """The first of these rows, in increasing order, that has the key of an earlier one."""
    _, first = np.unique(keys[rows], return_index=True)
    repeated = np.delete(rows, first)
    return int(repeated[0]) if len(repeated) else None

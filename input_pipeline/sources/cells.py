"""Cells of a table that hold lists: hard texts, their kinds, ids of hard images."""

import ast
import contextlib
import itertools
import json
import re
import threading
from typing import Any, NamedTuple

from vlc_jax.input_pipeline.record import DataError

# Python 3.11 has one parser depth counter for all threads: if the garbage collector lets another
# thread parse in between, the count is off, and Python raises SystemError.
_one_at_a_time = threading.Lock()
_TEXT = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_MISSING = ("nan", "NaN", "None", "null", "NA")
_CUT = "..."
_ITEM = rf"(?:b?{_TEXT}|<?(?:{'|'.join(_MISSING)})\b>?|\.\.\.)"
# ['a' 'b'], as numpy writes an array of texts; possessive (*+), or spaces take quadratic time
_ARRAY = re.compile(rf"\[\s*+{_ITEM}(?:\s*+{_ITEM})+\s*+\]", re.DOTALL)
# <ArrowStringArray>\n['a', 'b']\nLength: 2, dtype: str, as pandas 3 writes one
_PANDAS = re.compile(r"<\w+>\s*(\[.*\])\s*Length: \d+, dtype: .+", re.DOTALL)
_IS_LIST = re.compile(
    rf"""
    <(?=\w*Array)\w++>\s*+\[ | .*\bdtype:\ \S+$ | b{_TEXT}$  # as pandas or numpy write texts
    | [\w.]+\(\s*[\[({{]\s*{_ITEM} | [\[({{]\s*+[\w.]++\(\s*+[\[({{'"]
    | \[\s*+(\]$ | {_ITEM}\s*+(\]$|,?\s*+{_ITEM}) | ['"](.*['"]\s*+(\]$|,\s*+['"]) | [^\]]*$))
    | \(\s*+{_ITEM}\s*+,\s*+(\)$|{_ITEM}) | \{{\s*+{_ITEM}\s*+(\}}$|,\s*+{_ITEM})
    | \[\s*+[\[{{(]\s*+(['"]|$) | \[[\s\d.,+-]++\]$  # lists of lists, of objects, of numbers
    """,
    re.DOTALL | re.VERBOSE,
)


def read(row: dict[str, Any], column: str | None, name: str) -> Any:
    """A cell's value; parses lists, which CSV and TSV hold as JSON or Python literals."""
    value = None if column is None else row.get(column)
    if isinstance(value, str) and value.lstrip().startswith("["):
        return _parse(value.strip(), column, name)
    return value if column is None else read_captions(value, column, name)


def read_captions(value: Any, column: str, name: str) -> Any:
    """A cell of captions: a text that is a list of texts, as Python, numpy or pandas writes one,
    becomes a list, with None for a missing text.

    A text such as "[a sign] beside a road" is a caption. Raises DataError for a list that is cut
    short or damaged.
    """
    if not isinstance(value, str) or not _IS_LIST.match(value.strip()):
        return value
    return _parse(value.strip(), column, name)


def _parse(text: str, column: str | None, name: str) -> Any:
    # JSON first: Python would read an emoji that JSON escapes as two broken letters
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(text)
    if match := _PANDAS.fullmatch(text):
        text = match[1]
    # an escape outside of a text is no start of one, or each scans to the end
    items = [each for each in re.findall(rf"{_ITEM}|\\.", text, re.DOTALL) if each[0] != "\\"]
    try:
        if _CUT in items:
            raise ValueError("it is cut short (...)")
        # Python alone would join the texts of an array into one
        code = f"[{','.join(items)}]" if _ARRAY.fullmatch(text) else text
        kept = rf"({_TEXT}|\\.)|<NA>"
        code = re.sub(kept, lambda match: match[1] or "NA", code, flags=re.DOTALL)
        with _one_at_a_time:
            return _value(ast.parse(code, mode="eval").body)
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else error
        raise DataError(
            f"{name}: {column!r} is not a list: {reason}; got {text!r:.80}: write lists as JSON"
        ) from error


def _value(node: ast.expr) -> Any:
    """The value of an expression: lists of any kind, texts, numbers, None for nan.

    np.str_('a') is 'a', and array(['a', 'b'], dtype=object) the list.
    """
    match node:
        case ast.List() | ast.Tuple() | ast.Set():
            return [_value(each) for each in node.elts]
        case ast.Call(args=[argument]):
            return _value(argument)
        case ast.Name() if node.id in _MISSING:
            return None
        case ast.Constant(value=value) if not isinstance(value, bytes):
            return value
        case ast.UnaryOp() | ast.Dict():
            return ast.literal_eval(node)
    raise ValueError(f"it holds {ast.unparse(node):.40}")


def per_caption(value: list[Any], column: str | None, captions: int, name: str) -> list[list[str]]:
    """A list of texts for each caption; a flat list belongs to all captions."""
    if all(isinstance(text, str) for text in value):
        return [value] * captions if value else []
    if len(value) != captions or not all(isinstance(texts, list) for texts in value):
        raise DataError(
            f"{name}: {column!r} is a list of texts or one list for each of {captions} captions; "
            f"got {value}"
        )
    if not all(isinstance(text, str) for texts in value for text in texts):
        raise DataError(f"{name}: {column!r} holds something that is not text: {value}")
    return value


class Cells(NamedTuple):
    """Cells of a row that hold lists.

    name: of the row, for messages.   only_lists: True if a single value must be a list, too.
    """

    row: dict[str, Any]
    name: str
    only_lists: bool

    def as_list(self, column: str | None) -> list[Any]:
        """A cell as a list; unless `only_lists`, a single value becomes a list of one."""
        value = read(self.row, column, self.name)
        if value is None or value == "":
            return []
        if isinstance(value, list):
            return value
        if self.only_lists:
            raise DataError(
                f"{self.name}: {column!r} is a list such as ['a', 'b']; got {value!r:.80}"
            )
        return [value]

    def hard_texts(
        self, column: str | None, kinds_column: str | None, captions: int
    ) -> tuple[list[list[str]], list[list[str]]]:
        """Lists of texts and of their kinds, one of each per caption, without blank texts."""
        if column is None and kinds_column is None:
            return [], []
        texts = per_caption(self.as_list(column), column, captions, self.name)
        cell = read(self.row, kinds_column, self.name)
        if cell in (None, "", []):
            return [[text for text in caption_texts if text.strip()] for caption_texts in texts], []
        if isinstance(cell, str):
            kinds = [[cell] * len(caption_texts) for caption_texts in texts]
        else:
            value = cell if isinstance(cell, list) else [cell]
            kinds = per_caption(value, kinds_column, captions, self.name)
        if [*map(len, kinds)] != [*map(len, texts)]:
            raise DataError(
                f"{self.name}: {kinds_column!r} holds a kind for every text of {column!r}; got "
                f"{cell!r}"
            )
        masks = [[bool(text.strip()) for text in caption_texts] for caption_texts in texts]
        return (
            [[*itertools.compress(*pair)] for pair in zip(texts, masks, strict=True)],
            [[*itertools.compress(*pair)] for pair in zip(kinds, masks, strict=True)],
        )

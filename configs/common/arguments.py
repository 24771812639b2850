"""Parser of config arguments: the part of `--config path.py:name=value,flag` after the colon."""

import difflib
from types import SimpleNamespace
from typing import Any


def parse(argument: str | None, **defaults: Any) -> SimpleNamespace:
    """Values by name; a bare name is a flag set to True.

    >>> parse("steps=20,quickstart", steps=1000, quickstart=False, path="")
    namespace(steps=20, quickstart=True, path='')

    Raises ValueError for an unknown name, naming the known ones, and for a value that is not of
    its default's type.
    """
    values = dict(defaults)
    for part in filter(None, (argument or "").split(",")):
        name, has_value, text = part.partition("=")
        if name not in defaults:
            close = difflib.get_close_matches(name, defaults, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ValueError(
                f"unknown config argument {name!r}{hint} known: {', '.join(sorted(defaults))}"
            )
        values[name] = _convert(name, text if has_value else "true", type(defaults[name]))
    return SimpleNamespace(**values)


def _convert(name: str, text: str, kind: type) -> Any:
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"config argument {name} is true or false; got {text!r}")
        return text.lower() == "true"
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"config argument {name} is a {kind.__name__}; got {text!r}") from None

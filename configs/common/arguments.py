"""Arguments of a config: the part of `--config path.py:name=value,flag` after the colon, or, from
another config, a mapping."""

import difflib
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

Argument = str | Mapping[str, Any] | None


def parse(argument: Argument, **defaults: Any) -> SimpleNamespace:
    """Values by name; a bare name in a text is a flag set to True.

    >>> parse("steps=20,quickstart", steps=1000, quickstart=False, path="")
    namespace(steps=20, quickstart=True, path='')
    >>> parse({"steps": 20}, steps=1000, path="")
    namespace(steps=20, path='')

    Raises ValueError for an unknown name, naming the known ones, and for a value that is not of
    its default's type.
    """
    values = dict(defaults)
    is_text = not isinstance(argument, Mapping)
    given = _split(argument or "") if is_text else argument
    for name, value in given.items():
        if name not in defaults:
            close = difflib.get_close_matches(name, defaults, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ValueError(
                f"unknown config argument {name!r}{hint} known: {', '.join(sorted(defaults))}"
            )
        kind = type(defaults[name])
        if is_text:
            value = _convert(name, value, kind)
        elif type(value) is not kind:
            raise ValueError(f"config argument {name} is a {kind.__name__}; got {value!r}")
        values[name] = value
    return SimpleNamespace(**values)


def _split(text: str) -> dict[str, str]:
    parts = (part.partition("=") for part in text.split(",") if part)
    return {name: value if has_value else "true" for name, has_value, value in parts}


def _convert(name: str, text: str, kind: type) -> Any:
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"config argument {name} is true or false; got {text!r}")
        return text.lower() == "true"
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"config argument {name} is a {kind.__name__}; got {text!r}") from None

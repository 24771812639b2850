"""Arguments of a config: the part of `--config path.py:name=value,flag` after the colon, or, from
another config, a mapping.

A config declares each argument with its default, which is also its type, or with `OneOf`.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from vlc_jax import errors

Argument = str | Mapping[str, Any] | None


class OneOf:
    """A declared argument with few values, of which the first is the default."""

    def __init__(self, *values: Any) -> None:
        self.values = values


def parse(argument: Argument, **declared: Any) -> SimpleNamespace:
    """Values by name; a bare name in a text is a flag set to True.

    >>> parse("steps=20,quickstart", steps=1000, quickstart=False, path="")
    namespace(steps=20, quickstart=True, path='')
    >>> parse({"side": "left"}, steps=1000, side=OneOf("right", "left"))
    namespace(steps=1000, side='left')

    Raises ValueError for an undeclared name, naming the declared ones, for a name that is there
    twice, and for a value that is not of its default's type or not among the values of its `OneOf`.
    """
    values = {
        name: each.values[0] if isinstance(each, OneOf) else each for name, each in declared.items()
    }
    for name, value in _split(argument).items():
        errors.known("config argument", name, sorted(declared), ValueError)
        kind = type(values[name])
        if not isinstance(argument, Mapping):
            value = _convert(name, value, kind)
        elif type(value) is not kind:
            raise ValueError(f"config argument {name} is a {kind.__name__}; got {value!r}")
        if isinstance(declared[name], OneOf) and value not in declared[name].values:
            choices = ", ".join(map(str, declared[name].values))
            raise ValueError(f"{name} is one of {choices}; got {value!r}")
        values[name] = value
    return SimpleNamespace(**values)


def parse_data(argument: Argument, **declared: Mapping[str, Any]) -> SimpleNamespace:
    """Arguments of a config with several kinds of data; declared: data -> its arguments.

    >>> parse_data("data=coco,path=x", scenes={"steps": 250}, coco={"path": ""})
    namespace(data='coco', path='x')

    Raises ValueError as `parse` does; for an argument of other data it names that data.
    """
    values, data = _split(argument), OneOf(*declared)
    chosen = {name: value for name, value in values.items() if name == "data"}
    name = parse(chosen, data=data).data
    for each in values:
        others = [other for other in declared if each in declared[other]]
        if others and name not in others:
            raise ValueError(
                f"config argument {each!r} is of data={' and data='.join(others)}, not of "
                f"data={name}; known: {', '.join(sorted(['data', *declared[name]]))}"
            )
    return parse(argument, data=data, **declared[name])


def _split(argument: Argument) -> Mapping[str, Any]:
    if isinstance(argument, Mapping):
        return argument
    values: dict[str, str] = {}
    for part in filter(None, (argument or "").split(",")):
        name, has_value, value = part.partition("=")
        if name in values:
            raise ValueError(f"config argument {name!r} is there twice: leave one out")
        values[name] = value if has_value else "true"
    return values


def _convert(name: str, text: str, kind: type) -> Any:
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"config argument {name} is true or false; got {text!r}")
        return text.lower() == "true"
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"config argument {name} is a {kind.__name__}; got {text!r}") from None

"""Registry lookup with did-you-mean errors for names and options."""

import inspect
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vlc_jax import errors


def build(kind: str, table: Mapping[str, Callable[..., Any]], name: str, /, **options: Any) -> Any:
    """Calls `table[name]` with the options.

    kind: noun for error messages ("source"). Raises ValueError as `check` does, and for a missing
    option.
    """
    check(kind, table, name, options)
    needed = [
        option
        for option, parameter in inspect.signature(table[name]).parameters.items()
        if parameter.default is parameter.empty and option not in options
    ]
    if needed:
        raise ValueError(f"{kind} {name!r} needs the option {needed[0]!r}")
    return table[name](**options)


def check(
    kind: str,
    table: Mapping[str, Callable[..., Any]],
    name: str,
    options: Mapping[str, Any],
    passed: Sequence[str] = (),
) -> None:
    """Raises ValueError for an unknown name, an unknown option, or a value of another type.

    passed: parameters that the caller sets itself; they are no options.
    """
    errors.known(kind, name, table, ValueError)
    parameters = inspect.signature(table[name]).parameters.keys() - {*passed}
    check_known(f"option of {kind} {name!r}:", options, sorted(parameters))
    check_types(kind, name, table[name], options)


def check_types(
    kind: str, name: str, factory: Callable[..., Any], options: Mapping[str, Any]
) -> None:
    """Raises ValueError if an option's value does not have the type that the factory annotates.

    Checks only the types of _VALUES and unions of them.
    """
    parameters = inspect.signature(factory).parameters
    for option, value in options.items():
        if option not in parameters:
            continue
        allowed = _types(parameters[option].annotation)
        if allowed and not any(_VALUES[kind][1](value) for kind in allowed):
            expected = " or ".join(_VALUES[kind][0] for kind in allowed)
            is_list = isinstance(value, str) and expected.startswith("a list")
            hint = f""": write ["{value}"], in a shell '["{value}"]'""" if is_list else ""
            raise ValueError(
                f"{kind} {name!r}: the option {option!r} is {expected}; got {value!r}, "
                f"{type(value).__name__}{hint}"
            )


def options_of(record: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a function whose `**` are fields of a dataclass: its signature names them."""
    fields = [*inspect.signature(record).parameters.values()]

    def with_fields(function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind != each.VAR_KEYWORD]
        further = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in fields]
        function.__signature__ = signature.replace(parameters=[*own, *further])  # type: ignore
        return function

    return with_fields


def check_count(name: str, count: Any, most: float = math.inf) -> None:
    """Raises ValueError unless the option `name` is a whole number from 1 to `most`, or None."""
    if count is not None and not (_is_integer(count) and 1 <= count <= most):
        end = "on" if most == math.inf else f"to {most:,}"
        raise ValueError(f"{name} is a whole number from 1 {end}; got {count!r:.80}")


def weights(name: str, values: Any) -> list[float]:
    """The option `name` as a list. Raises ValueError unless it is one of numbers from 0 on, some
    above it, or empty."""
    is_list = isinstance(values, list | tuple) and all(map(_is_number, values))
    if not is_list or min(values, default=0) < 0 or not 0 < sum(values or [1]) < math.inf:
        raise ValueError(f"{name} are numbers from 0 on, some above 0; got {values!r:.80}")
    return [*map(float, values)]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)  # bool is a subclass of int


def _is_number(value: Any) -> bool:
    return _is_integer(value) or isinstance(value, float)


def _list_of(is_one: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list | tuple) and all(map(is_one, value))


# annotation -> its name in messages, and a test of a value
_VALUES: Mapping[Any, tuple[str, Callable[[Any], bool]]] = {
    str: ("a text", _is_text),
    Path: ("a path", lambda value: isinstance(value, str | Path)),
    bool: ("True or False", lambda value: isinstance(value, bool)),
    int: ("an integer", _is_integer),
    float: ("a number", _is_number),
    Sequence[str]: ("a list of texts", _list_of(_is_text)),
    tuple[str, ...]: ("a list of texts", _list_of(_is_text)),
    tuple[int, ...]: ("a list of integers", _list_of(_is_integer)),
    Mapping[str, float]: (
        "a table NAME: NUMBER",
        lambda value: isinstance(value, Mapping) and all(map(_is_number, value.values())),
    ),
    Mapping[str, str | Path | None]: (
        "a table NAME: FILE",
        lambda value: (
            isinstance(value, Mapping)
            and all(isinstance(each, str | Path | None) for each in value.values())
        ),
    ),
    Mapping[str, Any]: ("a table NAME: VALUE", lambda value: isinstance(value, Mapping)),
    type(None): ("None", lambda value: value is None),
}


def _types(annotation: Any) -> list[Any]:
    """Keys of _VALUES that an annotation allows; none if it allows other types as well."""
    is_union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
    allowed = [*typing.get_args(annotation)] if is_union else [annotation]
    return allowed if all(one in _VALUES for one in allowed) else []


def check_known(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raises ValueError for a name that is not in `known`, with the known names and the nearest."""
    known = list(known)
    for name in names:
        errors.known(kind, name, known, ValueError)

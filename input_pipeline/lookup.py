"""Things that are chosen by name, with options of their own; a wrong name says what is right."""

import difflib
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any


def build(kind: str, table: Mapping[str, Callable[..., Any]], name: str, **options: Any) -> Any:
    """What `table[name]` makes of the options.

    kind: what messages call it ("source"). Raises ValueError for an unknown name, an unknown
    option or one that is missing.
    """
    if name not in table:
        raise ValueError(f"no {kind} {name!r}{nearest(name, table)}; known: {sorted(table)}")
    parameters = inspect.signature(table[name]).parameters
    for option in options:
        if option not in parameters:
            raise ValueError(
                f"{kind} {name!r} has no option {option!r}{nearest(option, parameters)}; "
                f"known: {sorted(parameters)}"
            )
    needed = [
        option
        for option, parameter in parameters.items()
        if parameter.default is parameter.empty and option not in options
    ]
    if needed:
        raise ValueError(f"{kind} {name!r} needs the option {needed[0]!r}")
    return table[name](**options)


def check_types(
    kind: str, name: str, factory: Callable[..., Any], options: Mapping[str, Any]
) -> None:
    """Raises ValueError for an option whose value is not of the type the factory's signature says.

    Only the types of _VALUES are looked at, and what may also be None.
    """
    parameters = inspect.signature(factory).parameters
    for option, value in options.items():
        if option not in parameters:
            continue
        allowed = _types(parameters[option].annotation)
        if allowed and not any(_VALUES[each][1](value) for each in allowed):
            wanted = " or ".join(_VALUES[each][0] for each in allowed)
            raise ValueError(
                f"{kind} {name!r}: the option {option!r} is {wanted}; got {value!r}, "
                f"{type(value).__name__}"
            )


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_integer(value) or isinstance(value, float)


# annotation -> what messages call it, and whether a value is such
_VALUES: Mapping[Any, tuple[str, Callable[[Any], bool]]] = {
    str: ("a text", _is_text),
    int: ("an integer", _is_integer),
    float: ("a number", _is_number),
    Sequence[str]: (
        "a list of texts",
        lambda value: isinstance(value, list | tuple) and all(map(_is_text, value)),
    ),
    Mapping[str, float]: (
        "a table NAME: NUMBER",
        lambda value: isinstance(value, Mapping) and all(map(_is_number, value.values())),
    ),
    Mapping[str, Any]: ("a table NAME: VALUE", lambda value: isinstance(value, Mapping)),
    type(None): ("None", lambda value: value is None),
}


def _types(annotation: Any) -> list[Any]:
    """The keys of _VALUES that an annotation allows; none if it allows others as well."""
    is_union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
    found = [*typing.get_args(annotation)] if is_union else [annotation]
    return found if all(each in _VALUES for each in found) else []


def nearest(word: str, known: Iterable[str]) -> str:
    """ " (did you mean 'x'?)", or nothing where no known word is near."""
    near = difflib.get_close_matches(word, known, 1)
    return f" (did you mean {near[0]!r}?)" if near else ""

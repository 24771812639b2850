"""Things that are chosen by name, with options of their own; a wrong name says what is right."""

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
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


def nearest(word: str, known: Iterable[str]) -> str:
    """ " (did you mean 'x'?)", or nothing where no known word is near."""
    near = difflib.get_close_matches(word, known, 1)
    return f" (did you mean {near[0]!r}?)" if near else ""

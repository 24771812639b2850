"""Command line helpers: exit codes, NAME=VALUE options, counts, a progress bar."""

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from input_pipeline.record import DataError


def exit_code(run: Callable[[Any], int], request: Any) -> int:
    """The exit code of `run(request)`: 3 for a DataError, 2 for a wrong request, both printed."""
    try:
        return run(request)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def parse_options(pairs: Sequence[str]) -> dict[str, Any]:
    """["size=64", "path=a.jsonl"] -> {"size": 64, "path": "a.jsonl"}: JSON where it is, else text.

    Raises ValueError for a pair without "=".
    """
    options = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise ValueError(f"--option wants NAME=VALUE; got {pair!r}")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options


def positive(text: str) -> int:
    """Argparse type of an integer of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"an integer of at least 1 is needed; got {text!r}")
    return int(text)


@contextlib.contextmanager
def bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Progress bar: yields a function of the number done. Silent where stderr is no terminal."""
    from rich import console, progress

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
    )
    screen = console.Console(file=sys.stderr)
    with progress.Progress(*columns, console=screen, disable=not screen.is_terminal) as shown:
        task = shown.add_task(title, total=total)
        yield lambda done: shown.update(task, completed=done)

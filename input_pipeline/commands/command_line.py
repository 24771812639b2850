"""Command line helpers: parsers, exit codes, NAME=VALUE options, numbers."""

import argparse
import contextlib
import json
import os
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from vlc_jax import errors
from vlc_jax.input_pipeline.record import DataError

# Nobody reads the output: 128 + SIGPIPE, the code of other programs.
UNREAD = 141


def parser(name: str, description: str | None, **options: Any) -> argparse.ArgumentParser:
    """The parser of the command `vlc-jax NAME`; its description keeps its lines in --help."""
    return argparse.ArgumentParser(
        prog=f"vlc-jax {name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **options,
    )


def console(width: int | None = None) -> Any:
    """A console of rich on stdout; `UNREAD` in place of its exit code 1 if nobody reads it."""
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:
            has_reader_left()
            sys.exit(UNREAD)

    return Output(width=width)


def import_matplotlib() -> None:
    """Imports matplotlib, for figures that are files, whatever the environment's MPLBACKEND.

    Programs inherit that of a notebook that starts them, and without the notebook's packages the
    import fails on it. A backend that is valid here stays set: pyplot may be the caller's.
    """
    if "matplotlib" in sys.modules:
        return
    backend = os.environ.pop("MPLBACKEND", None)
    import matplotlib

    if backend is not None:
        os.environ["MPLBACKEND"] = backend
        with contextlib.suppress(ValueError):
            matplotlib.rcParams["backend"] = backend


def flush() -> None:
    """Writes the output so far; ends the process with UNREAD if nobody reads it.

    The interpreter, which writes the rest at its end, would print a line of its own.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        if has_reader_left():
            sys.exit(UNREAD)


def exit_code(
    run: Callable[[Any], int],
    request: Any,
    wrong: tuple[type[Exception], ...] = (ValueError, OSError),
    title: Callable[[Exception], str] = lambda error: "error",
) -> int:
    """The exit code of `run(request)`: that of an error with one (`errors.exit_code`), 30 for a
    lost server, 2 for `wrong` requests, each printed in one line; 141, without a line, where the
    reader of the output has left (`| head`). Raises other errors.

    title: beginning of the line.
    """
    try:
        return run(request)
    except Exception as error:
        if isinstance(error, BrokenPipeError) and has_reader_left():
            return UNREAD
        code, message = errors.exit_code(error), str(error)
        if isinstance(error, ConnectionError):
            code, message = errors.ExitCode.INFRASTRUCTURE, f"{error}; the same command continues"
        elif code is None and isinstance(error, wrong):
            code = errors.ExitCode.USAGE
        if code is None:
            raise
        print(one_line(f"{title(error)}: {message}"), file=sys.stderr)
        return int(code)


def one_line(text: str) -> str:
    """One printable line: files can hold line breaks, terminal codes and surrogates."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


@contextlib.contextmanager
def naming(option: str, flag: str) -> Iterator[None]:
    """Context manager: errors that name a source's `option` name the `flag` that sets it here."""
    try:
        yield
    except (DataError, ValueError) as error:
        if option not in str(error):
            raise
        raise type(error)(str(error).replace(option, flag)) from error


def has_reader_left() -> bool:
    """True if nobody reads the output of this process any more (`| head`), which then goes nowhere.

    A command ends with UNREAD and without a line for that.
    """
    output = select.poll()
    output.register(sys.stdout.fileno(), select.POLLOUT)
    if not any(event & select.POLLERR for _, event in output.poll(0)):
        return False
    # else the interpreter complains once more when it flushes at its end
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True


def parse_options(pairs: Sequence[str]) -> dict[str, Any]:
    """["size=64", "path=a.jsonl"] -> {"size": 64, "path": "a.jsonl"}.

    A value is parsed as JSON if possible, or True, False or None; else it is text. Raises
    ValueError for a pair without "=" and for a name that is there twice.
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise ValueError(f"--option wants NAME=VALUE; got {pair!r}")
        if name in options:
            raise ValueError(f"--option {name}=... is there twice: leave one out")
        try:
            options[name] = json.loads(value)
        except ValueError:
            # as configs and messages write them
            options[name] = {"True": True, "False": False, "None": None}.get(value, value)
    return options


def generator_options(text: str) -> dict[str, dict[str, Any]]:
    """Parses JSON, generator -> its options. Raises ValueError for anything else."""
    try:
        options = json.loads(text)
    except ValueError as error:
        raise ValueError(f"--generator-options is JSON; got {text!r}: {error}") from error
    if not isinstance(options, dict) or not all(isinstance(v, dict) for v in options.values()):
        raise ValueError(f"--generator-options is {{GENERATOR: {{OPTION: VALUE}}}}; got {text}")
    return options


def names(text: str) -> list[str]:
    """Argparse type of names joined by commas: one or more, each once."""
    listed = [name.strip() for name in text.split(",")]
    if "" in listed or len({*listed}) < len(listed):
        raise argparse.ArgumentTypeError(
            f"names are joined by commas, none is empty or there twice; got {text!r}"
        )
    return listed


def number(
    kind: type[int] | type[float], least: float, most: float = sys.float_info.max
) -> Callable[[str], Any]:
    """Argparse type of a finite number from `least` to `most`."""

    def parse(text: str) -> Any:
        with contextlib.suppress(ValueError):
            # False for NaN; `most` excludes infinity
            if least <= (value := kind(text)) <= most:
                return value
        name = "an integer" if kind is int else "a number"
        limit = "" if most == sys.float_info.max else f" and at most {most:,}"
        raise argparse.ArgumentTypeError(
            f"{name} of at least {least}{limit} is needed; got {text!r}"
        )

    return parse


positive = number(int, 1)
# of options that may be repeated: names joined by commas, and NAME=VALUE for `parse_options`
NAMES: dict[str, Any] = {"type": names, "action": "extend", "default": []}
PAIRS: dict[str, Any] = {"action": "append", "default": [], "metavar": "NAME=VALUE"}

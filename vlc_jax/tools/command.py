"""The command line of every tool: ends with one line, about what was done or what is wrong."""

import logging
import sys
from collections.abc import Callable

from absl import logging as absl_logging

from vlc_jax import main
from vlc_jax.errors import UsageError


def run(argv: list[str], do: Callable[[], str]) -> None:
    """Prints the sentence that `do` returns, or ends the process with one line and its exit code:
    130 when interrupted, else as main.exit_code has it.
    """
    absl_logging.get_absl_handler().setLevel(logging.WARNING)
    try:
        if len(argv) > 1:
            raise UsageError(f"unknown arguments {argv[1:]}; options start with --")
        print(do())
    except KeyboardInterrupt:
        print("interrupted; the same command goes on", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        code = main.exit_code(error)
        if code is None:
            raise
        print(f"{type(error).__name__.removesuffix('Error')}: {error}", file=sys.stderr)
        sys.exit(code)

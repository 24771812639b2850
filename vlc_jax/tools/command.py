"""The command line of every tool: it ends with one line, a summary or an error."""

import argparse
import json
import sys
import threading
from collections.abc import Callable, Sequence

from absl import app

from vlc_jax import errors
from vlc_jax.devices import runtime
from vlc_jax.encode import inference, load
from vlc_jax.input_pipeline.commands import addresses, parts
from vlc_jax.input_pipeline.commands import command_line as commands
from vlc_jax.run import terminal
from vlc_jax.setup import command_line

_PROCESSES = "multi_processing"  # of Beam's DirectRunner
_MODELS: dict[str, inference.Model] = {}
_loading = threading.Lock()
# Arguments of load.load.
WEIGHTS = ("tokenizer", "family", "variant", "image_size", "activation")


def add_model(parser: argparse.ArgumentParser) -> None:
    """Adds the options that select a model."""
    parser.add_argument("--model", required=True, help="workdir, exported folder or weights")
    weights = parser.add_argument_group("for weights without config files")
    for name in WEIGHTS:
        kind = int if name == "image_size" else str
        weights.add_argument(f"--{name}", type=kind, metavar=name.upper())


def model(args: argparse.Namespace) -> inference.Model:
    """The model selected by `args`, with --batch_size if the tool has it."""
    named = {name: getattr(args, name) for name in WEIGHTS}
    if hasattr(args, "batch_size"):
        named["batch_size"] = args.batch_size
    return load.load(args.model, **named)


def engine(runner: str | None, words: Sequence[str], flags: Sequence[str]) -> parts.Engine | None:
    """The engine of --runner for parts that compute with JAX; None without one.

    words, flags: of the command line, before and behind --. Raises UsageError, also for worker
    processes that would share an accelerator with this one, which loads the model, too.
    """
    with errors.usage_errors():
        made = parts.engine(runner, words, flags)
    if made is None:
        return None
    runtime.claim()
    if runner == parts.DIRECT and not runtime.is_cpu() and any(_PROCESSES in f for f in flags):
        raise errors.UsageError(
            f"{_PROCESSES}: JAX has one process per accelerator, and this one has them; leave the "
            "flag out, so that its threads compute, or set JAX_PLATFORMS=cpu"
        )
    return made


def shared_model(args: argparse.Namespace, is_alone: bool = False) -> inference.Model:
    """`model`, loaded once by the threads of a process, the last one only.

    is_alone: False: other processes load it, too, so this one claims its accelerator.
    """
    key = json.dumps([str(args.model), *(getattr(args, name) for name in (*WEIGHTS, "batch_size"))])
    with _loading:
        if key not in _MODELS:
            if not is_alone:
                runtime.claim()
            _MODELS.clear()
            _MODELS[key] = model(args)
        return _MODELS[key]


def start(do: Callable[[], str]) -> None:
    """Runs a tool with its own flags and the flags of vlc_jax.main."""

    @addresses.allowed
    def with_flags(words: list[str]) -> None:
        argv = [sys.argv[0], *words]
        app.run(lambda rest: run(do, rest[1:]), argv=argv, flags_parser=command_line.parse_flags)

    if code := with_flags():
        sys.exit(code)


def main(
    parser: Callable[[], argparse.ArgumentParser],
    do: Callable[[argparse.Namespace], str],
    is_computing: bool = False,
) -> Callable[..., None]:
    """The function `main(arguments)` of a tool: prints the summary that `do` returns.

    is_computing: connects the processes of JAX first.
    """

    @addresses.allowed
    def parsed(words: list[str]) -> None:
        args = parser().parse_args(words)

        def connected() -> str:
            # before JAX is used: it sets how the host reuses memory
            if is_computing:
                runtime.connect(None, None, None)
            return do(args)

        run(connected)

    return parsed


def run(do: Callable[[], str], unknown: Sequence[str] = ()) -> None:
    """Prints the summary that `do` returns, or exits with one line and an exit code.

    2 for a file that cannot be opened, else that of errors.exit_code.
    unknown: arguments that no flag has taken.
    """
    terminal.quieten()

    def shown(_: None) -> int:
        if unknown:
            raise errors.UsageError(f"unknown arguments {unknown}; options start with --")
        print(do())
        return 0

    def title(error: Exception) -> str:
        return type(error).__name__.removesuffix("Error")

    if code := commands.exit_code(shown, None, wrong=(OSError,), title=title):
        sys.exit(code)

"""Command lines with addresses: inputs are downloaded, --out is uploaded to an object store.

A signal ends them with one line (interrupt.py).

@addresses.allowed
def main(arguments=None): ...
"""

import functools
import logging
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.commands import command_line, interrupt, parts
from vlc_jax.input_pipeline.stores import any_path, fetch
from vlc_jax.input_pipeline.stores.mirror import Mirror

# --flag=ADDRESS, NAME=ADDRESS or ADDRESS
_WORD = re.compile(rf"(--?[\w.-]+=)?(\w+=)?((?:{'|'.join((*stores.KINDS, *stores.HUBS))})://\S+)")
# Addresses in its fields stay: the setup fetches them, and the workdir records them.
_CONFIG = "--config"
_PUSH = "--push"  # a repository to write to
_OUT = "--out"


def allowed(main: Callable[[list[str]], Any], stay_with: str | None = None) -> Callable[..., Any]:
    """Decorator of `main(arguments)`: replaces URLs among the arguments by local paths.

    stay_with: a flag with which they stay: the command reads and writes them in place.

    Files written at --out are copied to the store while they grow and at the end; files that an
    earlier call left there are downloaded first, so that the command can resume. The exit code is
    30 if the store fails, 2 for a URL without an object, 130 after an interrupt.
    """

    @functools.wraps(main)
    def wrapped(arguments: Sequence[str] | None = None) -> Any:
        if arguments is not None:  # a call, not the command of this process
            return run(arguments)
        # no limit on the time of the last copy to a store
        is_local = not any(map(_WORD.fullmatch, sys.argv))
        with interrupt.one_line(interrupt.GRACE if is_local else None):
            try:
                return run(None)
            except BrokenPipeError:
                if not command_line.has_reader_left():
                    raise
                return command_line.UNREAD
            finally:
                command_line.flush()

    def run(arguments: Sequence[str] | None) -> Any:
        words = sys.argv[1:] if arguments is None else [*arguments]
        # what follows -- is another program's
        end = words.index("--") if "--" in words else len(words)
        stays = any(word.partition("=")[0] == stay_with for word in words[:end])
        if stays or not any(map(_WORD.fullmatch, words[:end])):
            return main(words)

        def with_files(_: None) -> Any:
            with ExitStack() as outputs:
                here = [_local(words, index, outputs) for index in range(end)]
                return main([*here, *words[end:]])

        for name in ("gcsfs", "fsspec"):  # a traceback for each call that they try again
            logging.getLogger(name).setLevel(logging.CRITICAL)
        try:
            return command_line.exit_code(with_files, None)
        except KeyboardInterrupt:
            print("interrupted; the same command continues", file=sys.stderr)
            return 130

    return wrapped


def command(run: Callable[[list[str]], int]) -> Callable[..., int]:
    """The function `main` of a command: `run(words)` returns its exit code, or raises an error with
    one (`command_line.exit_code`)."""
    return allowed(functools.partial(command_line.exit_code, run))


def _local(words: Sequence[str], index: int, outputs: ExitStack) -> str:
    """An argument with a local path in place of its URL."""
    match = _WORD.fullmatch(words[index])
    if not match or words[index].startswith(_CONFIG):
        return words[index]
    flag, name, address = match.groups(default="")
    options = (flag.removesuffix("="), *words[index - 1 : index])
    if _PUSH in options:
        return words[index]
    if _OUT in options:
        any_path.of(address)  # raises ValueError for the hub, which is only read
        path = outputs.enter_context(_output(address, outputs))
    else:
        path = fetch.local(address)
    return f"{flag}{name}{path}"


@contextmanager
def _output(address: str, outputs: ExitStack) -> Iterator[Path]:
    """A local path that is mirrored to a URL, together with files beside it of the same stem."""
    parent, _, name = address.rstrip("/").rpartition("/")
    path = fetch.cache_folder(parent, "outputs")
    path.mkdir(parents=True, exist_ok=True)

    def is_ours(other: str) -> bool:
        first = other.partition("/")[0]
        # of an unfinished file: a killed command starts it again
        if other.endswith((".partial", ".lock")):
            return False
        # X.npy has X.json and others beside it
        is_beside = bool(Path(name).suffix) and first.partition(".")[0] == Path(name).stem
        return first == name or is_beside

    lock = outputs.enter_context((path / f".{name}.lock").open("a"))
    parts.lock(lock, address)
    # left by an earlier call; the store has the valid state
    for old in path.iterdir():
        if is_ours(old.name):
            fetch.remove(old)
    copies = Mirror(path, any_path.StorePath(parent), is_ours)
    copies.download(is_ours, prefix=Path(name).stem)
    copies.start()
    try:
        yield path / name
    finally:
        copies.close()
        print(f"copied to {address}", file=sys.stderr)

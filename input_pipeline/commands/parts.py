"""Work in numbered parts, each a pure function of its number, and the engines that write them.

`Job` of `shard_job` is such a work, and so is `Parts`: a function of a range of records, whose
result for each range is a small file with its own sha256. A part that has its file is not computed
again, whoever wrote it: this process or workers of Apache Beam (`beam_engine`).

  options, engine = parts.parse(parser, words)
  work = parts.Parts(function, out, total=len(source), size=16_384, request={"source": ...})
  parts.run(work, "counting", engine)
  merged = functools.reduce(merge, map(parse, parts.contents(work)))
"""

import argparse
import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import json
import math
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.commands import command_line
from vlc_jax.input_pipeline.record import DataError, ShardError
from vlc_jax.input_pipeline.stores import any_path, copies, fetch, progress
from vlc_jax.input_pipeline.stores.any_path import AnyPath, StorePath

# end of the names of finished parts, and of files that are there while a process writes
DONE, PARTIAL = ".done", ".partial"
DIRECT = "DirectRunner"  # on this machine
# beginning of the names of files that engines need
JOB = "job-"
REQUEST = "request.json"
# least records of a part, and most parts, unless --part-size says otherwise
_LEAST, _MOST = 256, 10_000

Advance = Callable[[int], None]  # called with the number of records that are done
_HEAD = 1 << 20  # bytes of the first line of a part's file, which may have an error's message
# told of every finished part; False: stop
Report = Callable[[Any], bool]


class Work(Protocol):
    """Parts 0 to count - 1 in the folder `out`; pickles to other processes.

    A finished part has a file NAME-NUMBER-of-COUNT.done in `out`, written last. It is a dataclass.
    """

    @property
    def out(self) -> AnyPath: ...
    @property
    def count(self) -> int: ...
    def indices(self, number: int) -> range:
        """Records of a part, for the progress."""
        ...

    def done(self, number: int) -> Any:
        """The finished part, None if it is not; read in little time."""
        ...

    def write(
        self,
        number: int,
        is_wanted: Callable[[], bool] = lambda: True,
        advance: Advance = lambda done: None,
    ) -> Any:
        """Writes a part unless it is finished and whole, and returns it. Any number of processes
        may do so at once.

        is_wanted: asked before files get their names; if it is False, None is returned.
        """
        ...


# writes all parts of a work
Engine = Callable[[Work, Report, Advance], None]


def in_this_process(work: Work, report: Report, advance: Advance) -> None:
    """Writes the parts one after the other."""
    for number in range(work.count):
        if not report(work.write(number, advance=advance)):
            return


def add_runner(parser: argparse.ArgumentParser) -> None:
    """--runner."""
    runners = "DirectRunner, FlinkRunner, SparkRunner, DataflowRunner, ..."
    parser.add_argument("--runner", help=f"of Apache Beam: {runners}; its flags follow --")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--runner, and the folder and the size of its parts."""
    add_runner(parser)
    text = (
        "finished parts, which the same command does not compute again; on a file system of all "
        "workers; default: a temporary folder"
    )
    parser.add_argument("--parts", metavar="FOLDER", help=text)
    text = "default: 256, or as many as make 10,000 parts"
    parser.add_argument("--part-size", type=command_line.positive, metavar="RECORDS", help=text)


@contextmanager
def folder(options: argparse.Namespace) -> Iterator[Path]:
    """The folder of --parts, or a temporary one. Raises ValueError if workers would not see it."""
    if options.parts:
        yield Path(options.parts).absolute()
    elif options.runner not in (None, DIRECT):
        raise ValueError(f"--runner {options.runner} needs --parts, a folder of all workers")
    else:
        with tempfile.TemporaryDirectory() as name:
            yield Path(name)


def beside(out: Path) -> Path:
    """The folder of the parts of a file OUT, OUT.parts."""
    return out.with_name(f"{out.name}.parts")


def remove(folder: Path) -> None:
    """Removes a folder of parts; nothing if it is none, or not there."""
    if (folder / REQUEST).exists():
        shutil.rmtree(folder)


def threads(options: argparse.Namespace, engine: Engine | None) -> int:
    """Threads of a process, of --threads: by default one per core, or one of each worker."""
    return options.threads or (1 if engine else os.cpu_count() or 1)


def size_of(options: argparse.Namespace, total: int) -> int:
    """Records per part."""
    return options.part_size or even_size(total, _LEAST)


def even_size(total: int, least: int) -> int:
    """Size of parts, at least `least`, of which there are not too many."""
    return max(least, math.ceil(total / _MOST))


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of a command line before and behind `--`: the command's and the runner's."""
    end = words.index("--") if "--" in words else len(words)
    return [*words[:end]], [*words[end + 1 :]]


def engine(runner: str | None, words: Sequence[str], flags: Sequence[str]) -> Engine | None:
    """The engine of --runner; None without one. Raises ValueError.

    words: of the command line, whose paths all workers must see.   flags: of the runner.
    """
    if runner is None:
        if flags:
            raise ValueError(f"{flags[0]} behind -- is a flag of a runner; name it in --runner")
        return None
    copied = [word for word in words if str(copies.root()) in word]
    if copied and runner != DIRECT:
        raise ValueError(
            f"{copied[0]} is a copy of an address on this machine, which workers of {runner} do "
            "not see; name a path of a file system that all of them mount"
        )
    from vlc_jax.input_pipeline.commands import beam_engine

    return beam_engine.engine(runner, flags)


def parse(
    parser: argparse.ArgumentParser, words: Sequence[str]
) -> tuple[argparse.Namespace, Engine | None]:
    """The options of a command line, and the engine of its --runner. Raises ValueError."""
    words, flags = split(words)
    options = parser.parse_args(words)
    return options, engine(options.runner, words, flags)


def lock(file: IO[Any], place: AnyPath | str) -> None:
    """Locks an open file until it is closed. Raises ValueError if another process has locked it."""
    # An flock, not a lock file: the kernel releases it when the process dies, however it dies.
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise ValueError(f"another process writes to {place}; wait for it or stop it") from error


@contextmanager
def locked(out: AnyPath) -> Iterator[None]:
    """Locks the folder, one in an object store on this machine only. Raises ValueError if another
    process writes to it."""
    if isinstance(out, StorePath):
        # another machine that writes the same folder writes the same bytes
        here = fetch.cache_folder(str(out), "outputs")
        here.mkdir(parents=True, exist_ok=True)
        with locked(here):
            yield
        return
    path, is_ours = out / f"lock{PARTIAL}", False
    # no file elsewhere, and no wait for the reader of a pipe
    flags = os.O_NOFOLLOW | os.O_NONBLOCK
    with open(path, "a", opener=lambda name, more: os.open(name, flags | more, 0o666)) as file:
        lock(file, out)
        # The other process may have removed the file between our `open` and our `lock`.
        with contextlib.suppress(FileNotFoundError):
            is_ours = os.fstat(file.fileno()).st_ino == path.stat().st_ino
        if not is_ours:
            raise ValueError(f"another process has just written to {out}; start again")
        yield
        Path(file.name).unlink()


@dataclasses.dataclass(frozen=True)
class Parts:
    """Files of `function` of each `size` of `total` records; a `Work`.

    function: range of records -> bytes; a pure function, which pickles: its class is not of a
      module that runs as a command, `__main__`. A DataError (or ShardError) that it raises is the
      part's result, which `contents` raises.
    request: what determines the results; a folder of another request is refused.
    """

    function: Callable[[range], bytes]
    out: Path
    total: int
    size: int
    request: Mapping[str, Any]

    @property
    def count(self) -> int:
        return math.ceil(self.total / self.size)

    @property
    def whole_request(self) -> dict[str, Any]:
        """The request with the division into parts."""
        return {**self.request, "total": self.total, "size": self.size}

    def indices(self, number: int) -> range:
        return range(number * self.size, min((number + 1) * self.size, self.total))

    def done(self, number: int) -> Mapping[str, Any] | None:
        """The head of a part's file: sha256, size and error ("") of its content."""
        path = self.path(number)
        with contextlib.suppress(OSError, ValueError), stores.open_regular(path) as file:
            head = stores.parse_json(file.readline(_HEAD))
            kinds = [*map(type, head.values())] if isinstance(head, dict) else []
            if kinds == [int, str, str] and file.seek(0, os.SEEK_END) >= head["bytes"]:
                return head
        return None

    def content(self, number: int) -> bytes | None:
        """The result of a part; None if it is not finished, or damaged. Raises its DataError."""
        if (head := self.done(number)) is None:
            return None
        with contextlib.suppress(OSError, MemoryError):
            content = stores.read_file(self.path(number)).partition(b"\n")[2]
            if head["sha256"] == hashlib.sha256(content).hexdigest():
                if head["error"]:
                    raise DataError(head["error"])
                return content
        return None

    def write(
        self,
        number: int,
        is_wanted: Callable[[], bool] = lambda: True,
        advance: Advance = lambda done: None,
    ) -> Mapping[str, Any] | None:
        with contextlib.suppress(DataError):
            if self.content(number) is not None:
                advance(self.indices(number).stop)
                return self.done(number)
        content, error = b"", ""
        try:
            content = self.function(self.indices(number))
        except (DataError, ShardError) as raised:
            error = str(raised)
        head = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        head |= {"error": error}
        partial = self.path(number).with_suffix(f".{uuid.uuid4().hex}{PARTIAL}")
        if not is_wanted():
            return None
        try:
            with partial.open("xb") as file:
                file.write(json.dumps(head).encode() + b"\n" + content)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(self.path(number))
        finally:
            partial.unlink(missing_ok=True)
        advance(self.indices(number).stop)
        return head

    def path(self, number: int) -> Path:
        """The file of a part."""
        return self.out / f"part-{number:05d}-of-{self.count:05d}{DONE}"


def run(work: Parts, title: str, engine: Engine | None = None) -> None:
    """Writes all parts that are not finished, with progress; engine: None: this process.

    Raises ValueError for a folder of another request or in use, ConnectionError for a lost worker,
    and the DataError of a part at once: the others may take days.
    """
    if work.out.exists() and not work.out.is_dir():
        raise ValueError(f"{work.out} is a file; name a folder for the parts")
    work.out.mkdir(parents=True, exist_ok=True)
    errors: list[str] = []

    def is_whole(head: Mapping[str, Any]) -> bool:
        errors.extend(filter(None, [head["error"]]))
        return not errors

    with locked(work.out), progress.bar(title, work.total) as advance:
        if not check(work):
            any_path.write_json(work.out / REQUEST, work.whole_request, indent=1)
        # permits and unfinished files of a run that was killed
        for path in work.out.glob(f"*{PARTIAL}"):
            if path.name != f"lock{PARTIAL}":
                path.unlink(missing_ok=True)
        # a part with an error is tried again: the data may be mended
        for number in range(work.count):
            if (head := work.done(number)) and head["error"]:
                work.path(number).unlink()
        (engine or in_this_process)(work, is_whole, advance)
    if errors:
        raise DataError(errors[0])


def check(work: Parts) -> bool:
    """True if the folder was begun with this request. Raises ValueError for another request."""
    before = begun(work.out, REQUEST) if work.out.is_dir() else None
    if before is not None:
        check_request(work.out, before, work.whole_request)
    return before is not None


def contents(work: Parts) -> Iterator[bytes]:
    """The results of all parts in order, one in memory at a time.

    Raises OSError for a missing or damaged one, DataError for one that could not be computed.
    """
    for number in range(work.count):
        content = work.content(number)
        if content is None:
            path = work.path(number)
            raise OSError(errno.EIO, f"{path} is missing or damaged; the same command writes it")
        yield content


@contextmanager
def parsing(path: AnyPath) -> Iterator[None]:
    """Context manager: errors of parsing what lies at `path` become a DataError.

    A hash in a file shows that it is whole, not who wrote it.
    """
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise DataError(f"{path} is damaged ({error!r:.200}): remove it") from error


def begun(out: AnyPath, name: str) -> dict[str, Any] | None:
    """The JSON file in which an earlier run wrote its request; None for a new folder.

    Raises ValueError if the folder holds anything else, DataError for a damaged file.
    """
    if (out / name).exists():
        with parsing(out):
            return dict(any_path.read_json(out / name))
    others = [entry.name for entry in out.iterdir() if entry.suffix != PARTIAL]
    if others:
        raise ValueError(f"{out} is not empty (it holds {others[0]}); choose another folder")
    return None


def check_request(place: AnyPath, before: Mapping[str, Any], request: Mapping[str, Any]) -> None:
    """Raises ValueError with the first difference of two requests.   place: of the one before."""
    # tuples become lists, as in the file
    request = json.loads(json.dumps(request))
    for key in {**request, **before}:
        if request.get(key) != before.get(key):
            raise ValueError(
                f"{place} was begun with {key} {before.get(key)!r:.200}, not "
                f"{request.get(key)!r:.200}; use the same options, name another, or remove it"
            )

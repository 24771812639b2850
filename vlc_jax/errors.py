"""Exit codes of a run, the exceptions that end it with one, and tables whose names users write.

An exception with an attribute `exit_code` is for people and supervisors: its message is printed as
one line. Any other is a bug of ours and keeps its traceback.

A `Table` has the rows of this package. Installed packages add rows to it, as entry points of
ENTRY_POINTS, and `module.attribute` is a row of any other code.
"""

import difflib
import enum
import errno
import functools
import importlib
import logging
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple


class ExitCode(enum.IntEnum):
    """Exit codes of a process. A supervisor restarts on INFRASTRUCTURE, HANG and PREEMPTED only."""

    DONE = 0
    USAGE = 2  # wrong flag, config, shape or workdir: a person must change something
    DATA = 3  # unreadable or inconsistent data; the message names the record
    DIVERGED = 10  # non-finite loss; restarting would only repeat it
    OUT_OF_MEMORY = 20
    INFRASTRUCTURE = 30
    HANG = 31  # no progress within the limit; the stacks of all threads are in the logs
    PREEMPTED = 75  # stopped by a signal, state saved; run the same command again


ALIASES = {"lr": "learning_rate", "wd": "weight_decay", "warmup": "warmup_steps"}
# of an OSError: the storage is full or fails, and the program is right
STORAGE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
# of an OSError that names its file: something else lies there, or nobody may write there
PLACE_ERRORS = (
    errno.EISDIR,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.ENODEV,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
)


class UsageError(Exception):
    """An invalid request. Its message has the rule, the value found and what to do."""

    exit_code = ExitCode.USAGE


def known(kind: str, name: str, names: Iterable[str], error: type[Exception] = UsageError) -> str:
    """Returns `name` if it is in `names`, else raises an error with the nearest one and all, or why
    a table could not take it from other code."""
    if name in names:
        return name
    is_table = isinstance(names, Table)
    if is_table and name in names.refused:
        raise error(f"{kind} {name!r}: {names.refused[name]}")
    listed = [str(other) for other in names]
    near = _nearest(str(name), listed)
    hint = f"; did you mean {near!r}?" if near else ";"
    unknown = f"unknown {kind} {name!r}{hint} known: {', '.join(listed)}"
    broken = (f"{each.package} is left out: {each.error}" for each in plugins() if each.error)
    raise error("; the plug-in ".join([unknown, *(broken if is_table else ())]))


def nearest(word: str, known: Iterable[str]) -> str:
    """Hint for an error message, " (did you mean 'x'?)"; "" if no known word is similar."""
    near = _nearest(word, known)
    return f" (did you mean {near!r}?)" if near else ""


def _nearest(word: str, known: Iterable[str]) -> str:
    known, alias = [*known], ALIASES.get(word, "")
    return alias if alias in known else "".join(difflib.get_close_matches(word, known, 1, 0.5))


class WeightsError(Exception):
    """Weights that do not fit the model, or a file without weights."""

    exit_code = ExitCode.DATA


class PeerError(Exception):
    """Another process of the run is absent or lost."""

    exit_code = ExitCode.INFRASTRUCTURE


class DivergedError(Exception):
    """A non-finite loss or gradient, whose update was not applied, or non-finite parameters."""

    exit_code = ExitCode.DIVERGED


class PreemptedError(Exception):
    """SIGTERM or SIGINT arrived; the run saves its state and ends.

    Arguments: name of the signal; what was saved.
    """

    exit_code = ExitCode.PREEMPTED

    def __str__(self) -> str:
        return ", ".join(map(str, self.args))


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turns a ValueError of the input pipeline, which has no exit codes, into a UsageError."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from error


def exit_code(error: BaseException) -> ExitCode | None:
    """The exit code of an error a person or a supervisor can act on; None for a bug of ours."""
    # by its name: importing JAX takes a second, and reports do without it
    is_jax = type(error).__name__ == "JaxRuntimeError" and "RESOURCE_EXHAUSTED" in str(error)
    if is_jax or isinstance(error, MemoryError):
        return ExitCode.OUT_OF_MEMORY
    if isinstance(error, OSError) and error.errno in STORAGE_ERRORS:
        return ExitCode.INFRASTRUCTURE
    if isinstance(error, OSError) and error.errno in PLACE_ERRORS and error.filename:
        return ExitCode.USAGE
    code = getattr(error, "exit_code", None)
    return None if code is None else ExitCode(code)


ENTRY_POINTS = "vlc_jax.plugins"  # the group; each names a module with some of these dictionaries
GROUPS = ("LOSSES", "HEADS", "SOURCES", "TOKENIZERS", "BENCHMARKS", "PROTOCOLS", "VARIANTS")
TRUSTED = "VLC_PLUGINS"  # environment variable: packages that the files of a run may import
_DOTTED = re.compile(r"(?<![\w./])[^\W\d]\w*(?:\.[^\W\d]\w*)+(?![\w./])")  # no part of a path
_written: set[str] = set()  # dotted names of the user's own config
_folders: list[str] = []  # of the user's modules
packages_in_use: set[str] = set()  # those with a row that was asked for


class Table(dict[str, Any]):
    """Rows by name: those of this package, of plug-ins, and `module.attribute` of other code.

    `name in table` adds the last two. The files of a run or model may come from anywhere, so a name
    in them imports no code: the user wrote it in a command or config of his (`allow`), its module
    is already imported, or its package is a plug-in or in VLC_PLUGINS.

    group: its dictionary in a plug-in.
    form, fits: what a row of other code must be, for messages; its test.
    row: makes a row from a name and what other code has under it.
    """

    def __init__(
        self,
        group: str,
        rows: Mapping[str, Any],
        form: str,
        fits: Callable[[Any], bool],
        row: Callable[[str, Any], Any] = lambda name, value: value,
    ):
        super().__init__(rows)
        self._group, self._form, self._fits, self._row = group, form, fits, row
        self.packages: dict[str, set[str]] = {}  # name of other code -> its top-level packages
        self.refused: dict[str, str] = {}  # name -> reason
        self._is_complete = False

    def __contains__(self, name: object) -> bool:
        if not self._is_complete:
            self._add_plugins()
        if isinstance(name, str) and _DOTTED.fullmatch(name) and not super().__contains__(name):
            self._add(name, name, functools.partial(_attribute, name))
        packages_in_use.update(self.packages.get(str(name), ()))
        return super().__contains__(name)

    def _add_plugins(self) -> None:
        """Adds their rows. Raises UsageError for a name that two packages have."""
        owners, rows = dict.fromkeys(self, "vlc_jax"), []
        for plugin in plugins():
            for name, value in plugin.rows(self._group).items():
                if name in owners:
                    raise UsageError(
                        f"{self._group}: {name!r} is of {owners[name]} and of the plug-in "
                        f"{plugin.package}: rename it there, or uninstall one of the packages"
                    )
                owners[name] = plugin.package
                rows.append((name, plugin.module, value))
        self._is_complete = True
        for name, module, value in rows:
            self._add(name, module, lambda value=value: value)
            if name in self.refused:
                logging.warning("%s of %s: %s", name, owners[name], self.refused[name])

    def _add(self, name: str, module: str, read: Callable[[], Any]) -> None:
        try:
            value = read()
            if not self._fits(value):
                raise UsageError(f"it must be {self._form}; got {value!r:.99}")
            self[name] = self._row(name, value)
            modules = (module, getattr(value, "__module__", None) or module)
            self.packages[name] = {each.partition(".")[0] for each in modules}
        except (UsageError, ValueError) as error:  # ValueError: a class without a signature
            self.refused[name] = str(error)


class Plugin(NamedTuple):
    """A loaded entry point of an installed package ("name version"), or the error."""

    package: str
    module: str
    content: Any
    error: str

    def rows(self, group: str) -> Mapping[str, Any]:
        """Its dictionary of a name of GROUPS."""
        return getattr(self.content, group, {})


@functools.cache
def plugins() -> tuple[Plugin, ...]:
    """The plug-ins of the installed packages, with a warning for each that cannot be loaded."""
    from importlib import metadata  # here: it takes 50 ms

    found = []
    for entry in sorted(metadata.entry_points(group=ENTRY_POINTS), key=lambda x: (x.name, x.value)):
        content, error = None, ""
        try:
            content = entry.load()
            given = [getattr(content, name) for name in GROUPS if hasattr(content, name)]
            if not given or not all(isinstance(each, Mapping) for each in given):
                raise UsageError(f"{entry.value} has dictionaries, some of {', '.join(GROUPS)}")
        except (Exception, SystemExit) as problem:
            content, error = None, _cause(problem)
        package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.module
        if error:
            logging.warning("the plug-in %s is left out: %s", package, error)
        found.append(Plugin(package, entry.module, content, error))
    return tuple(found)


def allow(text: str) -> None:
    """Lets tables import the dotted names in a text that the user wrote, such as his config."""
    _written.update(_DOTTED.findall(text))


def find_modules_in(*folders: str) -> None:
    """Lets the user's modules be found in folders, after the installed packages."""
    _folders.extend(each for each in folders if each not in _folders)
    sys.path.extend(each for each in folders if each not in sys.path)


def _attribute(name: str) -> Any:
    """The object `module.attribute`. Raises UsageError if it may not or cannot be imported."""
    module, _, attribute = name.rpartition(".")
    package = module.partition(".")[0]
    trusted = {*os.environ.get(TRUSTED, "").split(",")}
    trusted |= {plugin.module.partition(".")[0] for plugin in plugins()}
    written = _written | {*_DOTTED.findall("\n".join(sys.argv))}
    if not (package in trusted or name in written or module in sys.modules):
        raise UsageError(
            "the files of a run or model import no code. If you trust it, repeat --config, import "
            f"{module} before, or set the environment variable {TRUSTED}={package}"
        )
    find_modules_in(os.getcwd())
    try:
        found = importlib.import_module(module)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{module}.".startswith(f"{missing}."):
            places = " or ".join([*_folders, "the installed packages"])
            raise UsageError(f"there is no module {missing} in {places}") from None
        raise UsageError(f"cannot import {module}: {_cause(error)}") from error
    if not hasattr(found, attribute):
        file = getattr(found, "__file__", None) or module
        raise UsageError(f"{file} has no {attribute!r}{nearest(attribute, vars(found))}")
    return getattr(found, attribute)


def _cause(error: BaseException) -> str:
    """An error of other code on one line, with the last line of that code."""
    message = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: {message}"
    frames = traceback.extract_tb(error.__traceback__)
    not_own = ("<", sysconfig.get_path("stdlib"), __file__)
    own = [x for x in frames if not x.filename.startswith(not_own)]
    # libraries that the code called come last
    own = [x for x in own if "site-packages" not in x.filename] or own
    return f"{own[-1].filename}:{own[-1].lineno}: {message}" if own else message

"""The flag --config: a config by its path or short name, changed by --config.FIELD=VALUE."""

import ast
import os
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from vlc_jax import errors, losses
from vlc_jax.errors import ExitCode, UsageError
from vlc_jax.input_pipeline.commands import command_line as commands
from vlc_jax.input_pipeline.sources import SOURCES
from vlc_jax.input_pipeline.tokenizers import TOKENIZERS
from vlc_jax.run.workdir import SavedConfig
from vlc_jax.setup import catalogue, config_of_run
from vlc_jax.setup.duration import DURATIONS

# What ml_collections searches for --config.FIELD; by default sys.argv, with flags of OPTIONS in it.
_ARGUMENTS: list[str] = []
CONFIG = config_flags.DEFINE_config_file(
    "config",
    None,
    "Config file, with arguments after a colon.",
    lock_config=True,
    sys_argv=_ARGUMENTS,
)
# Dictionaries whose keys the config need not have: options of what the config chooses by name.
OPTIONS = re.compile(
    r"--?config\.((?:pretrain\.)*"
    r"(?:evals|input\.source_options|text\.tokenizer_options|model\.(?:image|text|head)))"
    r"\.([^=]+)(?:=(.*))?",
    re.DOTALL,
)
# Tables of a config whose keys may be dotted names -> the option that they become.
ENTRIES = {"config.losses": "loss", "config.evals": "reader"}
MESSAGE = 300  # letters of an error of a config file; ml_collections lists whole configs


def config(holder: flags.FlagHolder = CONFIG) -> ConfigDict:
    """The config that --config names."""
    value = holder.value
    if value is None and not holder.present:
        raise UsageError("--config FILE is missing, for example --config configs/scenes/clip.py")
    try:
        # ml_collections raises a file's OSError at the first use of its config
        if not hasattr(value, "lock"):
            kind = type(value).__name__
            raise UsageError(f"--config: its get_config returns a ConfigDict; it returned {kind}")
        value.lock()
        if not isinstance(value, SavedConfig):
            errors.allow(repr(value.to_dict()))
    except OSError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise UsageError(f"cannot load --config: {lines[-1]}") from error
    return value


def parse_flags(argv: list[str]) -> list[str]:
    """Parses the flags; an invalid one ends the process with a one-line message and exit code 2."""
    try:
        return _parse(argv, flags.FLAGS, CONFIG, _ARGUMENTS)
    except UsageError as error:
        print(f"Usage: {error}", file=sys.stderr)
        sys.exit(ExitCode.USAGE)
    except BrokenPipeError:  # of absl's --help
        if not commands.has_reader_left():
            raise
        sys.exit(commands.UNREAD)


def load(words: Sequence[str]) -> ConfigDict:
    """The config of --config and --config.FIELD=VALUE, whatever flags this process has.

    Raises UsageError."""
    values, given = flags.FlagValues(), list[str]()
    holder = config_flags.DEFINE_config_file(
        "config", None, "", flag_values=values, lock_config=True, sys_argv=given
    )
    _parse(["vlc-jax", *words], values, holder, given)
    return config(holder)


def _parse(
    argv: list[str], values: flags.FlagValues, holder: flags.FlagHolder, given: list[str]
) -> list[str]:
    """Parses `argv` into flags and returns the rest.   holder, given: flag of the config, and where
    it looks for --config.FIELD. Raises UsageError."""
    try:
        given[:], options = split_options(named_entries(with_config_paths(argv)))
        rest = values(given)
        for group, option, text in options:
            set_option(config(holder), group, option, text)
        # a duration of the command line stands in place of the config's
        fields = {word.lstrip("-").partition("=")[0] for word in given}
        names = [name for name in DURATIONS if f"config.{name}" in fields]
        if len(names) == 1:
            with config(holder).unlocked():
                config(holder).update({name: None for name in DURATIONS if name not in names})
        return rest
    except (UsageError, BrokenPipeError):
        raise
    except Exception as error:
        raise UsageError(_message(error, argv)) from error


def _message(error: Exception, argv: list[str]) -> str:
    """The line for an error of absl or ml_collections; raises an error that is of neither."""
    if (file_error := _config_file_error(error)) is not None:
        return f"--config {_flag(argv, 'config') or 'of the run'}: {file_error}"
    if isinstance(error, AttributeError | KeyError):  # ml_collections nests the one in the other
        inner = error.args[0] if isinstance(error.args[0], KeyError) else error
        missing = str(inner.args[0])
        message = "unknown config field " + ". ".join(missing.splitlines())
        name = missing.strip("'")
        if near := errors.ALIASES.get(name):
            message += f"; did you mean {near!r}?"
        for field, table in (("input.source", SOURCES), ("text.tokenizer", TOKENIZERS)):
            # a name in place of a field
            if name in table and f"{field.partition('.')[0]}.{name}" in " ".join(argv):
                message += f"; its options are set as --config.{field}_options.NAME=VALUE"
        if name in losses.LOSSES:
            message += (
                f"; config.losses is set whole: --config.losses=\"{{'infonce': {{'weight': 1.0}}, "
                f"'{name}': {{'weight': 1.0}}}}\""
            )
        return message
    if not isinstance(error, TypeError | ValueError | OSError | flags.Error):
        raise error
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    hint = ""
    if isinstance(error, flags.UnrecognizedFlagError):
        hint = errors.nearest(error.flagname.lower(), flags.FLAGS) or "; --help lists the flags"
    return " ".join([lines[0], *lines[-1:]] if len(lines) > 1 else lines) + hint


def _config_file_error(error: BaseException | None) -> str | None:
    """The error of a config file behind `error`, one line; None if `error` is not of its code.

    ml_collections and absl wrap TypeError and ValueError in errors with tracebacks as texts.
    """
    while error is not None:
        frames = traceback.extract_tb(error.__traceback__)
        is_wrapped = isinstance(error, flags.Error) or "Error whilst parsing" in str(error)
        # a line of ml_collections that loads or calls the file
        if not is_wrapped and any("config_module" in str(frame.line) for frame in frames):
            break
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    else:
        return None
    message = " ".join(str(error).split())[:MESSAGE]
    if isinstance(error, SyntaxError):
        return f"it is no config file: line {error.lineno or '?'}: {message}"
    ours = [frame for frame in frames if "ml_collections" not in frame.filename]
    inside = [frame for frame in ours if frame.name == "get_config"]
    if "get_config" in message and not inside:
        return f"it is no config file, or takes no arguments after a colon: {message}"
    # messages of our own configs are for people
    if isinstance(error, ValueError | UsageError):
        dotted = "; give the entry a name, and the dotted one as its option loss (reader in evals)"
        return message + dotted * ("does not accept dots" in message)
    return f"line {(inside or ours)[-1].lineno}: {type(error).__name__}: {message}"


def split_options(argv: list[str]) -> tuple[list[str], list[tuple[str, str, str]]]:
    """The arguments without flags of OPTIONS, and these as (dictionary, option, value)."""
    rest, options = list[str](), []
    words = iter(argv)
    for word in words:
        match = OPTIONS.fullmatch(word)
        if match is None:
            rest.append(word)
            continue
        group, option, text = match.groups()
        if text is None and (text := next(words, None)) is None:
            raise UsageError(f"{word} needs a value")
        options.append((group, option, text))
    return rest, options


def named_entries(argv: list[str]) -> list[str]:
    """The arguments with dotted keys of --config.losses and --config.evals, which no config may
    have, as an option `loss` or `reader` of an entry with the last word as its name."""
    argv = list(argv)
    for index, word in enumerate(argv):
        flag, equals, text = word.partition("=")
        option, place = ENTRIES.get(flag.lstrip("-")), index + (not equals)
        table = literal(text if equals else argv[place]) if option and place < len(argv) else None
        if isinstance(table, dict):
            entries = {
                str(key).rpartition(".")[2]: {option: key, **value}
                if "." in str(key) and isinstance(value, dict)
                else value
                for key, value in table.items()
            }
            if len(entries) < len(table):
                raise UsageError(f"{flag}: two entries end in one name; got {', '.join(table)}")
            argv[place] = f"{flag}={entries!r}" if equals else repr(entries)
    return argv


def set_option(config: ConfigDict, group: str, option: str, text: str) -> None:
    """Sets an option, "path" or one of a table in it, "positives.swap", in config.GROUP."""
    *tables, last = [*group.split("."), *option.split(".")]
    with config.unlocked():
        table = config
        for name in tables:
            if name not in table:
                table[name] = ConfigDict()
            table = table[name]
            if not isinstance(table, ConfigDict):
                raise UsageError(f"--config.{group}.{option}={text}: {name!r} has no options")
        # a path may be a number: text stays text
        is_text = isinstance(table.get(last), str) and text != "None" and not _is_quoted(text)
        value = text if is_text else literal(text)
        try:
            table[last] = value
        except TypeError as error:
            kind = table.get_type(last).__name__
            raise UsageError(f"--config.{group}.{option} needs {kind}; got {text!r}") from error


def _is_quoted(text: str) -> bool:
    """True for a text as a Python literal."""
    return isinstance(literal(text), str) and literal(text) != text


def literal(text: str) -> Any:
    """A Python literal, true or false; else the text itself, as ml_collections parses literals."""
    try:
        return ast.literal_eval(text.capitalize() if text in ("true", "false") else text)
    except (SyntaxError, ValueError):
        return text


def with_config_paths(argv: list[str]) -> list[str]:
    """The arguments with a short --config such as scenes/clip replaced by its path.

    In --mode eval without --config, the config of the run in --watch or --workdir is added.
    """
    argv = list(argv)
    values = {name: _flag(argv, name) for name in ("config", "mode", "workdir", "watch")}
    run = values["watch"] or values["workdir"]
    if values["config"] is None and values["mode"] == "eval" and run:
        if config_of_run.has_config(run):
            argv.insert(1, f"--config={config_of_run.__file__}:{run}")
        return argv
    names = [word.partition("=")[0] for word in argv]
    if (count := names.count("--config") + names.count("-config")) > 1:
        raise UsageError(f"--config is there {count} times: leave all but one of them out")
    for index, word in enumerate(argv):
        if word in ("--config", "-config") and index + 1 < len(argv):
            argv[index + 1] = catalogue.find_config(argv[index + 1])
        elif word.startswith(("--config=", "-config=")):
            argv[index] = f"--config={catalogue.find_config(word.partition('=')[2])}"
    _find_modules_of((_flag(argv, "config") or "").partition(":")[0])
    return argv


def _find_modules_of(config_file: str) -> None:
    """Lets a project's config import modules in its folder and in the current one, which `python
    -m` has on its path and the program vlc-jax has not."""
    folder = Path(config_file).resolve().parent
    if config_file and not folder.is_relative_to(catalogue.config_folder()):
        errors.find_modules_in(str(folder), os.getcwd())


def _flag(argv: list[str], name: str) -> str | None:
    """The last value of a flag, as `--name value` or `--name=value`; None if it is absent."""
    value = None
    for index, word in enumerate(argv):
        if word in (f"--{name}", f"-{name}"):
            value = argv[index + 1] if index + 1 < len(argv) else None
        elif word.startswith((f"--{name}=", f"-{name}=")):
            value = word.partition("=")[2]
    return value

"""The flag --config: a config by its path or short name, changed by --config.FIELD=VALUE."""

import ast
import re
import sys
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from vlc_jax.errors import ExitCode, UsageError
from vlc_jax.input_pipeline.sources import SOURCES
from vlc_jax.input_pipeline.tokenizers import TOKENIZERS
from vlc_jax.setup import catalogue, config_of_run

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
    r"(?:input\.source_options|text\.tokenizer_options|model\.(?:image|text|head)))"
    r"\.([^=]+)(?:=(.*))?",
    re.DOTALL,
)
# Settings of a process, no longer of a config.
ELSEWHERE = {
    "plan": "--plan_topology, --plan_step and --plan_search",
    "platform": "the environment variable JAX_PLATFORMS",
    "compilation_cache": "the environment variable JAX_COMPILATION_CACHE_DIR",
}


def config() -> ConfigDict:
    """The config that --config names."""
    if CONFIG.value is None:
        raise UsageError("--config FILE is missing, for example --config configs/scenes/clip.py")
    try:
        CONFIG.value.lock()  # ml_collections raises a file's load error at its first use
    except OSError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise UsageError(f"cannot load --config: {lines[-1]}") from error
    return CONFIG.value


def parse_flags(argv: list[str]) -> list[str]:
    """Parses the flags; an invalid one ends the process with a one-line message and exit code 2."""
    try:
        argv, options = split_options(with_config_paths(argv))
        _ARGUMENTS[:] = argv
        rest = flags.FLAGS(argv)
        for group, option, text in options:
            set_option(config(), group, option, text)
        return rest
    except UsageError as error:
        print(f"Usage: {error}", file=sys.stderr)
        sys.exit(ExitCode.USAGE)
    except (AttributeError, KeyError) as error:  # ml_collections nests the one in the other
        inner = error.args[0] if isinstance(error.args[0], KeyError) else error
        missing = str(inner.args[0])
        message = "unknown config field " + ". ".join(missing.splitlines())
        if setting := ELSEWHERE.get(missing.strip("'")):
            message += f"; it is set with {setting}"
        for field, table in (("input.source", SOURCES), ("text.tokenizer", TOKENIZERS)):
            if missing.strip("'") in table:  # a name in place of a field
                message += f"; its options are set as --config.{field}_options.NAME=VALUE"
        print(f"Usage: {message}", file=sys.stderr)
        sys.exit(ExitCode.USAGE)
    except (TypeError, ValueError, OSError, flags.Error) as error:
        # absl wraps an error of a config file in a traceback, whose last line is the message
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        message = " ".join([lines[0], *lines[-1:]] if len(lines) > 1 else lines)
        print(f"Usage: {message}", file=sys.stderr)
        sys.exit(ExitCode.USAGE)


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
        value = text if is_text else _value(text)
        try:
            table[last] = value
        except TypeError as error:
            kind = table.get_type(last).__name__
            raise UsageError(f"--config.{group}.{option} needs {kind}; got {text!r}") from error


def _is_quoted(text: str) -> bool:
    """True for a text as a Python literal."""
    return isinstance(_value(text), str) and _value(text) != text


def _value(text: str) -> Any:
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
    for index, word in enumerate(argv):
        if word in ("--config", "-config") and index + 1 < len(argv):
            argv[index + 1] = catalogue.find_config(argv[index + 1])
        elif word.startswith(("--config=", "-config=")):
            argv[index] = f"--config={catalogue.find_config(word.partition('=')[2])}"
    return argv


def _flag(argv: list[str], name: str) -> str | None:
    """The last value of a flag, as `--name value` or `--name=value`; None if it is absent."""
    value = None
    for index, word in enumerate(argv):
        if word in (f"--{name}", f"-{name}"):
            value = argv[index + 1] if index + 1 < len(argv) else None
        elif word.startswith((f"--{name}=", f"-{name}=")):
            value = word.partition("=")[2]
    return value

"""The flag --config: a config by its path or short name, changed by --config.FIELD=VALUE."""

import re
import sys

from absl import flags
from ml_collections import ConfigDict, config_flags

from vlc_jax.errors import ExitCode, UsageError
from vlc_jax.setup import catalogue, config_of_run

CONFIG = config_flags.DEFINE_config_file(
    "config", None, "Config file, with arguments after a colon.", lock_config=True
)


def config() -> ConfigDict:
    """The config that --config names."""
    if CONFIG.value is None:
        raise UsageError("--config FILE is missing, for example --config configs/scenes/clip.py")
    try:
        CONFIG.value.lock()  # a file that could not be loaded says so when it is first touched
    except OSError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise UsageError(f"cannot load --config: {lines[-1]}") from error
    return CONFIG.value


def parse_flags(argv: list[str]) -> list[str]:
    """Flags -> values; a wrong one ends the process with one line and exit code 2."""
    try:
        return flags.FLAGS(with_config_paths(argv))
    except UsageError as error:
        print(f"Usage: {error}", file=sys.stderr)
        sys.exit(ExitCode.USAGE)
    except (AttributeError, KeyError) as error:  # ml_collections nests the one in the other
        inner = error.args[0] if isinstance(error.args[0], KeyError) else error
        message = "unknown config field " + ". ".join(str(inner.args[0]).splitlines())
        if any(re.match(r"--config\.model\.(image|text|head)\.", flag) for flag in argv):
            message += "; fields of a tower or a head are set together: "
            message += "--config.model.head=\"{'dropout': 0.0}\""
        print(f"Usage: {message}", file=sys.stderr)
        sys.exit(ExitCode.USAGE)
    except (TypeError, ValueError, OSError, flags.Error) as error:
        # What a config file raises comes wrapped in a traceback; its last line says it.
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        message = " ".join([lines[0], *lines[-1:]] if len(lines) > 1 else lines)
        print(f"Usage: {message}", file=sys.stderr)
        sys.exit(ExitCode.USAGE)


def with_config_paths(argv: list[str]) -> list[str]:
    """The arguments with --config as a path, where it is a short name such as scenes/clip; in
    evaluation, without one, that of the run that is watched or in the workdir."""
    argv = list(argv)
    found = {name: _flag(argv, name) for name in ("config", "mode", "workdir", "watch")}
    run = found["watch"] or found["workdir"]
    if found["config"] is None and found["mode"] == "eval" and run:
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
    """The value of a flag, the last one given, in either form; None without one."""
    value = None
    for index, word in enumerate(argv):
        if word in (f"--{name}", f"-{name}"):
            value = argv[index + 1] if index + 1 < len(argv) else None
        elif word.startswith((f"--{name}=", f"-{name}=")):
            value = word.partition("=")[2]
    return value

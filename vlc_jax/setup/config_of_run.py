"""A run's config as a config file, so that the command line can change its fields:

  python -m vlc_jax.main --mode eval --workdir runs/clip --config.evals.scenes_swap.split=test

main uses this file as --config if --mode eval names a workdir and no config.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from vlc_jax.configs import default
from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline.stores import any_path
from vlc_jax.run.workdir import SavedConfig, not_of_this_version, saved_config
from vlc_jax.setup.addresses import copy_of

# with a default, but the names in them are the user's choice
OPEN = ("losses", "input.negatives.generators", "input.positives.generators")


def get_config(workdir: str) -> ConfigDict:
    """The config in `workdir`, with the types (tuples, placeholders) that JSON loses.

    Without its eval.cache, if that is a folder elsewhere: whoever wrote the file would choose where
    this run writes.
    """
    path = copy_of("--workdir", workdir)
    saved = saved_config(path).to_dict()
    check(saved, path / "config.json")
    cache = saved["eval"].get("cache")
    if cache and not Path(cache).absolute().is_relative_to(path.absolute()):
        saved["eval"]["cache"] = None
        if not any(word.startswith("--config.eval.cache") for word in sys.argv):
            note = f"not used: the eval.cache {cache!r} of {path}/config.json; to use that folder, "
            print(f"{note}name it as --config.eval.cache", file=sys.stderr)
    return SavedConfig(_typed(saved, default.get_config()), path / "config.json").lock()


def check(saved: Mapping[str, Any], path: Path) -> None:
    """Raises UsageError, naming `path`, for other fields or types than a config has."""
    _check(saved, default.get_config(), path)
    if saved["pretrain"]:
        check(saved["pretrain"], path)


def _check(saved: Mapping[str, Any], defaults: ConfigDict, path: Path, prefix: str = "") -> None:
    for key in sorted({*saved} ^ {*defaults}):
        raise not_of_this_version(path, f"{prefix}{key}")
    for key, value in saved.items():
        name, kind = f"{prefix}{key}", defaults.get_type(key)
        if not _fits(value, kind):
            expected = "an object" if issubclass(kind, ConfigDict) else f"of type {kind.__name__}"
            raise UsageError(f"{path}: {name} must be {expected}; got {str(value)[:80]!r}")
        if issubclass(kind, ConfigDict) and defaults[key] and name not in OPEN:
            _check(value, defaults[key], path, f"{name}.")


def _fits(value: Any, kind: type) -> bool:
    """True for a value of JSON that a field of this type may have."""
    if issubclass(kind, ConfigDict):
        return isinstance(value, Mapping)
    if value is None:
        return True
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    others = {float: int | float, tuple: tuple | list}
    return isinstance(value, others.get(kind, kind))


def has_config(workdir: str) -> bool:
    """True if `workdir`, a local folder or one in an object store, has a config.json."""
    try:
        return (any_path.of(workdir) / "config.json").is_file()
    except (ValueError, OSError):  # reported when the workdir is read
        return False


def _typed(saved: Mapping[str, Any], default: ConfigDict) -> dict[str, Any]:
    typed = dict(saved)
    for key in saved.keys() & default.keys():
        value, kind = saved[key], default.get_type(key)
        if isinstance(value, Mapping) and isinstance(default[key], ConfigDict):
            # an empty default has keys of the user's choice, such as config.evals
            is_open = not default[key]
            typed[key] = ConfigDict(value) if is_open else _typed(value, default[key])
        elif value is None:
            typed[key] = placeholder(kind)
        elif isinstance(value, list) and kind is tuple:
            typed[key] = tuple(value)
    return typed

"""Replaces object-store addresses in a config by local copies."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.stores import fetch
from vlc_jax.run.workdir import SavedConfig, read_object

LOCAL = ("eval.cache", "input.source_options.stage")  # written by several processes at once


def check(config: ConfigDict) -> None:
    """Raises UsageError for an address of an unknown kind, or in a field that must be local."""
    for name, value in _strings("", config.to_dict()):
        try:
            is_address = stores.is_url(value)
        except ValueError as error:
            raise UsageError(f"config.{name}: {error}") from error
        if is_address and name in LOCAL:
            raise UsageError(f"config.{name} is {value}: it must be a folder on a local disk")


def localised(config: ConfigDict) -> ConfigDict:
    """The config with every address replaced by its local copy; the config itself if it has none.

    Downloads missing copies. Raises UsageError for an address that does not exist.
    """
    content = config.to_dict()
    if not any(_is_fetched(name, value, config) for name, value in _strings("", content)):
        return config
    content = _replaced("", content, config)
    if isinstance(config, SavedConfig):
        return SavedConfig(content, config._path).lock()
    return ConfigDict(content).lock()


def started_elsewhere(config: ConfigDict, workdir: Path | str) -> str:
    """Advice if relative paths of the config are files of the folder where the run was started, and
    not of the present one; "" otherwise.
    """
    path = Path(workdir) / "env.json"
    if stores.is_url(workdir) or not path.is_file():
        return ""
    try:
        folder = str(read_object(path).get("folder", ""))
    except UsageError:  # a damaged file is no reason to hide the error
        return ""
    if not folder or not os.path.isdir(folder):
        return ""
    for name, value in _strings("", config.to_dict()):
        is_there = value and not os.path.isabs(value) and os.path.exists(Path(folder) / value)
        # a word such as "clip" may be a folder there
        if is_there and not os.path.exists(value) and ("/" in value or "." in value):
            return (
                f"; the run was started in {folder}, where config.{name}={value} is: go there, or "
                "name absolute paths and --allow_config_change"
            )
    return ""


def copy_of(name: str, address: str | os.PathLike[str]) -> Path:
    """Local path; addresses are downloaded first. Raises UsageError naming the field `name`."""
    try:
        return fetch.local(address)
    except (ValueError, PermissionError) as error:
        raise UsageError(f"{name}: {error}") from error


def _is_fetched(name: str, value: str, config: ConfigDict) -> bool:
    # staged shards are copied one by one during training
    is_staged = name == "input.source_options.path" and config.input.source_options.get("stage")
    return not is_staged and stores.is_url(value)


def _replaced(name: str, value: Any, config: ConfigDict) -> Any:
    if isinstance(value, Mapping):
        return {key: _replaced(_below(name, key), item, config) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_replaced(name, item, config) for item in value)
    if isinstance(value, str) and _is_fetched(name, value, config):
        return str(copy_of(f"config.{name}", value))
    return value


def _strings(name: str, value: Any) -> list[tuple[str, str]]:
    """Dotted name and value of every string."""
    if isinstance(value, Mapping):
        parts = [_strings(_below(name, key), item) for key, item in value.items()]
    elif isinstance(value, list | tuple):
        parts = [_strings(name, item) for item in value]
    else:
        return [(name, value)] if isinstance(value, str) else []
    return [pair for part in parts for pair in part]


def _below(name: str, key: Any) -> str:
    return f"{name}.{key}" if name else str(key)

"""Addresses of object stores and of the hub in a config: pinned, and replaced by local copies."""

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from vlc_jax.errors import UsageError, WeightsError
from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.stores import fetch, hub
from vlc_jax.run.workdir import SavedConfig, read_object

LOCAL = ("eval.cache", "input.source_options.stage")  # written by several processes at once
OF_DATA = ("input.", "evals.", "pretrain.")


def check(config: ConfigDict) -> None:
    """Raises UsageError for an address of an unknown kind, or in a field that must be local."""
    for name, value in _strings("", config.to_dict()):
        try:
            is_address = stores.is_url(value)
            if stores.is_hub(value):
                hub.parse(value)
        except ValueError as error:
            raise UsageError(f"config.{name}: {error}") from error
        if is_address and name in LOCAL:
            raise UsageError(f"config.{name} is {value}: it must be a folder on a local disk")
        if is_address and stores.is_hub(value) and not _is_fetched(name, value, config):
            raise UsageError(
                f"config.{name} is {value}: repositories of the hub are copied whole; leave out "
                "config.input.source_options.stage"
            )


def localised(config: ConfigDict, *, only_model: bool = False) -> ConfigDict:
    """The config with every address replaced by its local copy; the config itself if it has none.

    only_model: leave the addresses of training data and benchmarks.
    Downloads missing copies. Raises UsageError for an address that does not exist, and, unless
    `only_model`, for one that only the config.json of a run names (`_check_chosen`).
    """
    if isinstance(config, SavedConfig) and not only_model:
        _check_chosen(config)

    def local(name: str, value: str) -> str:
        if not _is_fetched(name, value, config) or (only_model and name.startswith(OF_DATA)):
            return value
        return str(copy_of(f"config.{name}", value))

    return _mapped(config, local)


def hashed(config: ConfigDict, *, only_model: bool = False) -> ConfigDict:
    """The config with the commit and the hash of the files in every address of the hub.

    So config.json names the bytes that were read: a run that resumes with others is refused, and
    one that is evaluated reads no others.   only_model: as in `localised`, after which it copies
    nothing more.
    """

    def with_hash(name: str, value: str) -> str:
        if not stores.is_hub(value) or (only_model and name.startswith(OF_DATA)):
            return value
        with _usage_errors(f"config.{name}"):
            return hub.hashed(value)

    return _mapped(config, with_hash)


def hashes(config: Mapping[str, Any]) -> dict[str, str]:
    """{address: sha256} of every file of the hub that the config names, which are copied."""
    addresses = [value for _, value in _strings("", config) if stores.is_hub(value)]
    return {k: v for address in dict.fromkeys(addresses) for k, v in hub.hashes(address).items()}


def started_elsewhere(config: ConfigDict, workdir: Path | str, error: object = "") -> str:
    """Advice if relative paths of the config are files of the folder where the run was started, and
    not of the present one, or if a path that `error` names is in neither; "" otherwise.
    """
    path = Path(workdir) / "env.json"
    if stores.is_url(workdir) or not path.is_file():
        return ""
    try:
        folder = str(read_object(path).get("folder", ""))
    except UsageError:  # a damaged file is no reason to hide the error
        return ""
    if not os.path.isabs(folder) or folder == os.getcwd():
        return ""
    # a word such as "clip" may be a folder there
    paths = [(k, v) for k, v in _strings("", config.to_dict()) if "/" in v or "." in v]
    paths = [(k, v) for k, v in paths if "://" not in v and not os.path.exists(v)]
    for name, value in paths:
        if error and value not in str(error):
            continue  # the error is of something else
        if not os.path.isabs(value) and os.path.exists(Path(folder) / value):
            return (
                f"; the run was started in {folder}, where config.{name}={value} is: go there, or "
                "name absolute paths and --allow_config_change"
            )
    for name, value in paths:
        if value in str(error):
            return (
                f"; the run was started in {folder}, and config.{name}={value} is not here: copy "
                f"or link it to {os.path.abspath(value)}"
            )
    return ""


@contextmanager
def where_started(config: ConfigDict, workdir: Path) -> Iterator[None]:
    """Context manager: adds `started_elsewhere` to the errors of missing files."""
    try:
        yield
    except (UsageError, WeightsError, DataError) as error:
        if advice := started_elsewhere(config, workdir, error):
            raise type(error)(f"{error}{advice}") from error
        raise


def copy_of(name: str, address: str | os.PathLike[str]) -> Path:
    """Local path; addresses are downloaded first. Raises UsageError naming the field `name`."""
    with _usage_errors(name):
        return fetch.local(address)


@contextmanager
def _usage_errors(name: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, PermissionError) as error:
        raise UsageError(f"{name}: {error}") from error


def _check_chosen(config: SavedConfig) -> None:
    """Raises UsageError for an address in the config of a run that its user did not choose.

    A workdir may be a stranger's, who would choose what is fetched with the credentials of whoever
    evaluates it. Chosen are addresses on the command line, and of buckets and repositories that
    were copied to this machine before, as those of an own run were in training.
    """
    words = " ".join(sys.argv)
    for name, value in _strings("", config.to_dict()):
        if not _is_fetched(name, value, config) or fetch.has_copies(value):
            continue
        if not re.search(rf"{re.escape(value)}(?![^\s,'\")}}\]])", words):
            raise UsageError(
                f"{config._path} names {value} as {name}, of which this machine has no copy, and "
                "the command line does not name it: it is not fetched for the writer of that file; "
                f"if you want it, add --config.{name}={value}"
            )


def _is_fetched(name: str, value: str, config: ConfigDict) -> bool:
    # staged shards are copied one by one during training
    is_staged = name == "input.source_options.path" and config.input.source_options.get("stage")
    return not is_staged and stores.is_url(value)


def _mapped(config: ConfigDict, change: Callable[[str, str], str]) -> ConfigDict:
    """The config with every string changed by (dotted name, value); itself if none changes."""
    content = config.to_dict()
    if all(change(name, value) == value for name, value in _strings("", content)):
        return config
    content = _replaced("", content, change)
    if isinstance(config, SavedConfig):
        return SavedConfig(content, config._path).lock()
    return ConfigDict(content).lock()


def _replaced(name: str, value: Any, change: Callable[[str, str], str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _replaced(_below(name, key), item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_replaced(name, item, change) for item in value)
    return change(name, value) if isinstance(value, str) else value


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

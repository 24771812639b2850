"""A run's config as a config file, so that the command line can change its fields:

  python -m vlc_jax.main --mode eval --workdir runs/clip --config.evals.scenes_swap.split=test

main uses this file as --config if --mode eval names a workdir and no config.
"""

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from vlc_jax.configs import default
from vlc_jax.input_pipeline import stores
from vlc_jax.run.workdir import SavedConfig, saved_config
from vlc_jax.setup.addresses import copy_of


def get_config(workdir: str) -> ConfigDict:
    """The config in `workdir`, with the types (tuples, placeholders) that JSON loses."""
    path = copy_of("--workdir", workdir)
    saved = saved_config(path).to_dict()
    return SavedConfig(_typed(saved, default.get_config()), path / "config.json").lock()


def has_config(workdir: str) -> bool:
    """True if `workdir`, a local folder or one in an object store, has a config.json."""
    try:
        return stores.folder(workdir).stat("config.json") is not None
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

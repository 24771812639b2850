"""vlc_jax.json of an exported folder: the config of its model, which `vlc_jax.load` reads.

Other projects ignore the file. It has the fields of config.model, config.text and of config.input
that belong to the model; the path of the tokenizer is relative to the folder.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from vlc_jax import weights
from vlc_jax.configs import default
from vlc_jax.configs.common import pretrained
from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline.tokenizers import pretrained_folder
from vlc_jax.run.workdir import read_object
from vlc_jax.setup import data
from vlc_jax.types.setup import Setup

NAME = "vlc_jax.json"
# of a folder with compiled programs and no weights (tools/stablehlo.py)
PROGRAMS = "stablehlo.json"
# Fields of config.model that depend on the devices, not on the weights.
OF_DEVICES = ("dtype", "attention", "remat", "scan_layers")


def content(config: ConfigDict, tokenizer: str | None) -> dict[str, Any]:
    """The content of the file for a run with this config.

    tokenizer: name of the exported file with its vocabulary; None without one.
    """
    model, text = config.model.to_dict(), config.text.to_dict()
    # of a run whose tokenizer is that of another run: its options
    options = data.tokenizer_options(config)
    path = options.pop("path", None)
    if text["tokenizer"] == "words" and path:
        # the exported file has the words in another format
        options["words"] = Path(path).read_text("utf-8").split()
    elif tokenizer and (path or text["tokenizer"] == "clip"):
        options["path"] = tokenizer
    text["tokenizer_options"] = options
    return {
        "model": {key: value for key, value in model.items() if key not in OF_DEVICES},
        "text": text,
        "input": {key: config.input[key] for key in pretrained.OF_MODEL},
    }


def read(path: str | Path) -> ConfigDict | None:
    """The config of the weights at `path`, a file or folder; None without vlc_jax.json beside them.

    Raises UsageError for a damaged file, or one of another version of vlc_jax.
    """
    if (Path(path) / PROGRAMS).is_file():
        raise UsageError(
            f"{path} has StableHLO programs and no weights: read them with jax.export.deserialize "
            "(docs/library.md), or load the run that was exported"
        )
    folder = weights.metadata.folder(path)
    if folder is None or not (file := folder / NAME).exists():
        return None
    try:
        config = config_of(read_object(file), file)
        with config.unlocked():
            options = config.text.tokenizer_options
            if "path" in options:
                # a name and no path: the file may come from anywhere
                options.path = str(folder / Path(options.path).name)
            config.init_from = str(path)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise UsageError(f"{file} is damaged: {error!r}; export the run again") from error
    return config


def config_of(groups: Mapping[str, Mapping[str, Any]], file: Path) -> ConfigDict:
    """The default config with the fields of `content`. Raises UsageError for an unknown one."""
    config = default.get_config()
    with config.unlocked():
        for group in ("model", "text", "input"):
            for key, value in groups[group].items():
                if key not in config[group]:
                    raise UsageError(
                        f"{file} is of another version of vlc_jax, with {group}.{key}: export "
                        "the run again"
                    )
                config[group][key] = _config_value(value)
    return config


def write_tokenizer(out: Path, setup: Setup) -> str | None:
    """Writes the files of the model's tokenizer, if any; returns the name of the vocabulary."""
    if hasattr(setup.tokenizer, "files"):
        contents = setup.tokenizer.files()
        for name, text in contents.items():
            (out / name).write_text(text, "utf-8")
        return next(iter(contents))
    if not setup.tokenizer_path:
        return None
    if not (files := pretrained_folder.files(setup.tokenizer_path)):
        raise UsageError(f"the files of the tokenizer at {setup.tokenizer_path} are gone")
    for name, file in files.items():
        shutil.copy(file, out / name)
    # the file itself, of several in its folder
    names = [name for name, file in files.items() if file == Path(setup.tokenizer_path)]
    return (names or list(files))[0]


def _config_value(value: Any) -> Any:
    """A value of JSON as configs have it: a ConfigDict for an object, a tuple for a list."""
    if isinstance(value, Mapping):
        return ConfigDict({key: _config_value(inner) for key, inner in value.items()})
    return tuple(map(_config_value, value)) if isinstance(value, list) else value

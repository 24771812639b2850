"""`vlc_jax.load(PATH)`: a model of a run, of an exported folder, or of published weights."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vlc_jax.encode import text_encoders
from vlc_jax.encode.inference import Model
from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline.stores import open_clip_names
from vlc_jax.run.workdir import is_workdir, saved_config
from vlc_jax.setup import addresses, init_from, resolve
from vlc_jax.setup.weights_config import config_of_weights
from vlc_jax.types.setup import Setup


def load(
    path: str | os.PathLike[str],
    *,
    pretrained: str | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
    family: str | None = None,
    variant: str | None = None,
    image_size: int | None = None,
    context_length: int | None = None,
    activation: str | None = None,
    instruction: str | None = None,
    batch_size: int = 64,
) -> Model:
    """Loads a model.

        model = vlc_jax.load("runs/clip")
        model.score(["a.jpg", "b.jpg"], ["a red circle", "a blue square"])

    path: the workdir of a run (its latest checkpoint), a folder of vlc_jax.tools.export, or weights
      of OpenAI, open_clip, Hugging Face or big_vision; on a disk or at an address (gs://...,
      hf://OWNER/NAME); with `pretrained`, a model name of open_clip ("ViT-B-32").
    pretrained: tag of open_clip's published weights ("openai").
    batch_size: images or texts per forward pass, over all devices.
    tokenizer, family, variant, image_size, context_length, activation, instruction: for weights
      only, whose files may not contain them (`setup.weights_config.config_of_weights`); a run has
      them in its config.
    Raises UsageError, WeightsError, CheckpointError, DataError.
    """
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"load takes the path of a run or of weights; got {path!r:.50}")
    if pretrained is not None:
        path = f"open_clip://{os.fspath(path)}/{pretrained}"
    path = addresses.copy_of("path", path)
    options = {
        "tokenizer": str(addresses.copy_of("tokenizer", tokenizer)) if tokenizer else None,
        "family": family,
        "variant": variant,
        "image_size": image_size,
        "context_length": context_length,
        "activation": activation,
        "instruction": instruction,
    }
    if not path.exists():
        tags = open_clip_names.tags_of(str(path))
        hint = f"; published weights of this name are pretrained={', '.join(tags)}" if tags else ""
        raise UsageError(f"there is no workdir and there are no weights at {path}{hint}")
    if not isinstance(batch_size, int) or batch_size < 1:
        raise UsageError(f"batch_size is a whole number from 1 on; got {batch_size!r}")
    setup, variables = (
        _load_run(path, options) if is_workdir(path) else _load_weights(path, options)
    )
    return Model(setup, variables, batch_size, path if path.is_dir() else path.parent)


def _load_run(path: Path, options: Mapping[str, Any]) -> tuple[Setup, Mapping[str, Any]]:
    if listed := ", ".join(name for name, value in options.items() if value is not None):
        raise UsageError(f"{path} is a run, whose config sets {listed}: leave {listed} out")
    config = saved_config(path)
    with addresses.where_started(config, path):
        setup = resolve(config, "weights")
        text_encoders.encode_others(setup.tokenizer)
        return setup, init_from.load_latest(setup, path).variables


def _load_weights(path: Path, options: Mapping[str, Any]) -> tuple[Setup, Mapping[str, Any]]:
    if is_workdir(first := path / "pretrain"):  # the run that config.pretrain trains before
        raise UsageError(
            f"{path} was stopped in its pretraining: the same command continues it; the run so far "
            f"is {first}"
        )
    setup = resolve(config_of_weights(path, **options), "weights")
    return setup, {"params": init_from.load_complete(setup), "batch_stats": {}}

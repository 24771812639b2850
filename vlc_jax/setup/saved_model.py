"""The workdir of a model that no run has trained: `Model.save` of vlc_jax/encode/inference.py."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline import stores
from vlc_jax.run import workdir, workdir_files
from vlc_jax.run.checkpoint import Checkpoints
from vlc_jax.run.environment import environment
from vlc_jax.setup import exported_config, resolve
from vlc_jax.setup.state import init_state
from vlc_jax.types.setup import Setup


@contextmanager
def writing(
    setup: Setup, variables: Mapping[str, Any], folder: str | os.PathLike[str]
) -> Iterator[Path]:
    """A context with the folder that becomes `folder` at its end, a workdir at step 0.

    Its config is the default one with model, texts and pixels of `setup`: what was frozen or an
    adapter is saved with all other parameters. The tokenizer's files are copied, but for vectors of
    texts. Raises UsageError.
    """
    if stores.is_url(os.fspath(folder)) or jax.process_count() > 1:
        raise UsageError(f"save writes a local folder, in a program of one process; got {folder}")
    out = Path(folder).absolute()
    with workdir_files.new_folder(out) as made:
        tokenizer = made / workdir.TOKENIZER
        tokenizer.mkdir()
        name = None if setup.tokenizer.width else exported_config.write_tokenizer(tokenizer, setup)
        groups = exported_config.content(ConfigDict(setup.config), name)
        groups["model"]["dtype"] = setup.config["model"]["dtype"]
        options = groups["text"]["tokenizer_options"]
        if name and options.get("path") == name:
            options["path"] = str(out / workdir.TOKENIZER / name)
        config = exported_config.config_of(groups, out)
        workdir.write_json(made / "config.json", config.to_dict())
        workdir.write_json(made / "env.json", environment())
        saved = resolve(workdir.saved_config(made), "weights")
        checkpoints = Checkpoints(made / "checkpoints")
        # zeros are the initial state of the optimizer, and numpy's take no compilation
        shapes = jax.eval_shape(partial(init_state, saved), {})
        state = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)._replace(**variables)
        checkpoints.save(0, jax.tree.map(jnp.asarray, state))
        checkpoints.wait()
        yield made

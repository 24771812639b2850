"""Checks that the library of an exported folder computes the same scores from it."""

import functools
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from vlc_jax.errors import UsageError, WeightsError
from vlc_jax.input_pipeline.images import naflex
from vlc_jax.models.tower import image_shape
from vlc_jax.tools import load_exported

# Of cosines in float32.
TOLERANCE = 1e-4
LIBRARIES = {"hf": "transformers", "open_clip": "open_clip", "peft": "transformers and peft"}


def check(
    folder: Path, target: str, model: nn.Module, params: Any, text: np.ndarray, python: str
) -> str:
    """Compares scores on noise images; returns the result as a sentence.

    python: an interpreter that may have the library.   text: ids (n, length).
    Raises WeightsError if scores differ by more than 1e-4, or the library cannot load the folder.
    """
    if target not in LIBRARIES:
        return f"not checked: there is no library to load {target} with"
    images = _images(model, len(text))
    with tempfile.TemporaryDirectory() as name:
        inputs, outputs = Path(name) / "inputs.npz", Path(name) / "outputs.npz"
        np.savez(inputs, text=text, **images)
        script = Path(load_exported.__file__)
        try:
            done = subprocess.run(
                [python, script, target, folder, inputs, outputs],
                capture_output=True,
                text=True,
                check=False,
                # a file that the folder lacks must be an error, not a download
                env={**os.environ, "HF_HUB_OFFLINE": "1"},
            )
        except OSError as error:
            raise UsageError(f"cannot run --python {python}: {error.strerror}") from error
        if done.returncode == load_exported.NOT_INSTALLED:
            missing = done.stderr.strip().splitlines()[-1]
            return f"not checked: {missing} ({LIBRARIES[target]} is needed; see --python)"
        if done.returncode or not outputs.exists():
            last = (done.stderr.strip().splitlines() or [f"{python} printed nothing"])[-1]
            raise WeightsError(f"{LIBRARIES[target]} cannot load the exported folder: {last}")
        with np.load(outputs) as arrays:
            theirs, scale = arrays["image"] @ arrays["text"].T, arrays["scale"].item()
    ours = np.asarray(_scores(model, params, images["image"], text))
    difference = float(np.abs(ours - theirs).max())
    our_scale = float(jnp.exp(params["logit_scale"]))
    if difference > TOLERANCE or abs(scale / our_scale - 1) > TOLERANCE:
        raise WeightsError(
            f"{LIBRARIES[target]} computes other scores from the exported folder: they differ by "
            f"{difference:.1e} (allowed {TOLERANCE:.0e}), logit scale {scale:g} instead of "
            f"{our_scale:g}"
        )
    return (
        f"checked: {LIBRARIES[target]} gives the same scores, largest difference {difference:.1e}"
    )


def _images(model: nn.Module, count: int) -> dict[str, np.ndarray]:
    """Noise, "image"; of NaFlex mosaics of several aspect ratios, also as "patches" and "grids"."""
    rng, tower = np.random.default_rng(0), model.image
    if not getattr(tower, "position_grid", None):
        return {"image": rng.normal(size=(count, *image_shape(tower))).astype(np.float32)}
    patch, across = tower.patch_size, tower.grid
    grids = np.array([(max(across - i, 1), min(across + i, across**2)) for i in range(count)])
    pictures = [rng.integers(0, 256, (*patch * grid, 3), np.uint8) for grid in grids]
    mosaics = [naflex.mosaic(picture, patch, tower.image_size) for picture in pictures]
    image = np.stack(mosaics).astype(np.float32) / 127.5 - 1
    patches = image[:, 1:].reshape(count, across, patch, across, patch, 3).swapaxes(2, 3)
    return {"image": image, "patches": patches.reshape(count, across**2, -1), "grids": grids}


def _scores(model: nn.Module, params: Any, image: np.ndarray, text: np.ndarray) -> jax.Array:
    def scores(module: nn.Module, image: jax.Array, text: jax.Array) -> jax.Array:
        return module.score(module.encode_image(image), module.encode_text(text))

    apply = jax.jit(functools.partial(model.apply, method=scores))
    return apply({"params": params}, image, text)

"""Parameters of heads with a decoder, from LLaVA-like folders and from language models."""

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vlc_jax import weights
from vlc_jax.devices import sharding
from vlc_jax.errors import UsageError
from vlc_jax.models import captioner, lm
from vlc_jax.setup import weights_compatibility
from vlc_jax.types.setup import Setup


class Keeping(NamedTuple):
    """Selection of the arrays of a language model to load, and the memory they go to.

    is_placed: onto the devices of the leaves of `shapes`; otherwise into host memory.
    only: paths of the loaded arrays in the tree of all parameters; None: all.
    """

    is_placed: bool = False
    only: Collection[str] | None = None


def load_llava(
    setup: Setup, shapes: Mapping[str, Any], path: Path, keeping: Keeping
) -> dict[str, Any]:
    """Image tower and head of a LLaVA-like folder, a tree like `shapes` without a text tower.

    Raises UsageError if the model has no decoder, or has a text tower.
    """
    if not has_decoder(setup) or weights_compatibility.has_text_tower(setup.model):
        raise UsageError(
            f"{path} has a language model, which needs a decoder head and no text tower: set "
            "config.model.name='captioner' or 'vlm2vec', and config.model.text_tower=False"
        )
    loaded = _load_shaped(path, {"image": shapes["image"], **shapes["head"]}, keeping)
    head = {name: part for name, part in loaded.items() if name != "image"}
    parts = {"image": loaded.get("image"), "head": head}
    bias = {"logit_bias": np.zeros((), np.float32)} if "logit_bias" in shapes else {}
    params = {name: part for name, part in parts.items() if part}
    return params | {"logit_scale": initial_logit_scale(setup), **bias}


def has_decoder(setup: Setup) -> bool:
    """True if the model's head is captioner or vlm2vec."""
    return isinstance(setup.model.head, captioner.DecoderHead)


def initial_logit_scale(setup: Setup) -> np.ndarray:
    """The config's initial logit scale (a logarithm), for weights with another kind of score."""
    return np.asarray(math.log(setup.model.logit_scale_init), np.float32)


def load_language_model(
    setup: Setup, shapes: Mapping[str, Any], keeping: Keeping
) -> dict[str, Any]:
    """The decoder's parameters at config.head_from, without a projector.

    Raises UsageError if its sizes differ from the config's.
    """
    path = Path(setup.origin.head_path)
    sizes = weights.llava.read_sizes(path)["lm"]
    ours, theirs = setup.model.head.language_model, lm.from_sizes(sizes)
    same = {"dtype": ours.dtype, "param_dtype": ours.param_dtype, "remat": ours.remat}
    if ours != (theirs := theirs.clone(**same, parent=None)):
        names = [name for name in sizes if getattr(ours, name) != getattr(theirs, name)]
        differing = ", ".join(f"{n} {getattr(theirs, n)}, here {getattr(ours, n)}" for n in names)
        raise UsageError(
            f"the language model at {path} differs from config.model.head: {differing}; set "
            "config.model.head.decoder, and config.model.vocab_size"
        )
    return {"head": _load_shaped(path, {"lm": shapes["head"]["lm"]}, keeping)}


def _load_shaped(path: Path, shapes: Mapping[str, Any], keeping: Keeping) -> dict[str, Any]:
    """Parts of a LLaVA, or a language model alone, in the dtypes of `shapes`."""
    like, only = weights.flatten(shapes), keeping.only

    def put(name: str, array: np.ndarray) -> Any:
        ours = name if name.startswith("image/") else f"head/{name}"
        if only is not None and ours not in only:
            return None
        if keeping.is_placed:
            return sharding.put_like(array, like[name])
        return array.astype(like[name].dtype, copy=False)

    loaded = weights.llava.load(path, weights.llava.read_sizes(path), shapes, put=put)
    arrays = {name: array for name, array in weights.flatten(loaded).items() if array is not None}
    return weights.unflatten(arrays)

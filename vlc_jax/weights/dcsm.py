"""DCSM heads from the authors' checkpoints (Raphoo/DCSM_Ideal_CLIP), which are torch archives.

A checkpoint holds the network and the vectors of functional words; its CLIP, tokenizer and
optimizer state are ignored. Our head flattens the map like theirs, (channel, image token, text
token), so dense matrices need only a transpose.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vlc_jax.errors import WeightsError
from vlc_jax.weights import rename, torch_archive
from vlc_jax.weights.rename import SAME, TRANSPOSED, rule

NETWORK, VECTORS, WORDS = "model_state_dict", "external_logic_token_embeddings", "learned_lookup"

# Both networks of the paper: two convolutions and two dense layers, or three dense layers.
RULES = [
    rule(f"conv{i + 1}.{theirs}", f"conv_{i}{ours}", SAME)
    for i in range(2)
    for theirs, ours in (("weight", ""), ("bias", "_bias"))
]
RULES += [
    rule(f"fc{i + 1}.{theirs}", f"dense_{i}{ours}", codec)
    for i in range(3)
    for theirs, ours, codec in (("weight", "", TRANSPOSED), ("bias", "_bias", SAME))
]
RULES.append(rule(VECTORS, "functional_words"))


class Loaded(NamedTuple):
    """Float32 parameters of a head, and its functional words (None: the paper's words)."""

    params: dict[str, np.ndarray]
    words: tuple[str, ...] | None


def load(path: str | Path, shapes: Mapping[str, Any]) -> Loaded:
    """The head in a checkpoint of DCSM's authors; parameters are a tree like `shapes`.

    shapes: parameters of our head, arrays or jax.ShapeDtypeStruct. A head without functional words
    ignores their vectors. Raises WeightsError for another kind of file or other sizes.
    """
    path = Path(path)
    if not path.is_file():
        problem = f"{path} is a folder" if path.is_dir() else f"there is no file {path}"
        raise WeightsError(f"{problem}; a checkpoint of DCSM's authors is a file (.pt)")
    # Their checkpoints pickle whole modules, even a tokenizer: all become objects without code.
    saved = torch_archive.content(path, may_hold_objects=True)
    if not isinstance(saved, dict) or not {NETWORK, VECTORS} <= saved.keys():
        raise WeightsError(
            f"{path} is no checkpoint of DCSM's authors, which has {NETWORK} and {VECTORS}"
        )
    expected = {key: tuple(value.shape) for key, value in rename.flatten(shapes).items()}
    try:
        arrays = {**_network(saved[NETWORK]), VECTORS: _vectors(saved[VECTORS])}
        flat = rename.load(RULES, arrays, expected, ignored=(VECTORS,))
        rename.check_values(flat, expected)
    except WeightsError as error:
        raise WeightsError(
            f"{path}: {error}. A network has a fixed number of image tokens and a fixed context "
            "length (the published ones: CLIP B/16 at 224 pixels, 30 tokens), and no running "
            "average for standardise=running"
        ) from error
    words = saved.get(WORDS)
    if words is None:
        return Loaded(flat, None)
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise WeightsError(f"{path}: {WORDS} is no list of words")
    return Loaded(flat, tuple(words))


def _network(saved: Any) -> dict[str, np.ndarray]:
    """The tensors of a state dict."""
    if not isinstance(saved, dict) or not all(
        isinstance(name, str) and isinstance(value, np.ndarray) for name, value in saved.items()
    ):
        raise WeightsError(f"{NETWORK} is no state dict")
    return saved


def _vectors(saved: Any) -> np.ndarray:
    """Weights of a torch Embedding, saved as a module, a state dict or a tensor."""
    if isinstance(saved, torch_archive.Inert):
        saved = saved.state.get("_parameters") if isinstance(saved.state, dict) else None
    if isinstance(saved, dict):
        saved = saved.get("weight")
    if not isinstance(saved, np.ndarray):
        raise WeightsError(f"{VECTORS} is not an embedding")
    return saved

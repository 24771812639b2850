"""A DCSM head as its authors save it (Raphoo/DCSM_Ideal_CLIP): the torch archive of a training.

Beside the network and the vectors of functional words it holds the whole CLIP, its tokenizer and
the state of the optimizer, which are left out. Our head flattens as theirs does, (channel, image
token, text token), so its matrices are only transposed.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vlc_jax.errors import WeightsError
from vlc_jax.weights import rename, torch_archive
from vlc_jax.weights.rename import SAME, TRANSPOSED, rule

NETWORK, ROWS, WORDS = "model_state_dict", "external_logic_token_embeddings", "learned_lookup"

# Of both networks: two convolutions and two dense layers, or three dense layers.
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
RULES.append(rule(ROWS, "rows"))


class Loaded(NamedTuple):
    """The parameters of a head, float32, and the words that its vectors stand for; None: those of
    the paper."""

    params: dict[str, np.ndarray]
    words: tuple[str, ...] | None


def load(path: str | Path, shapes: Mapping[str, Any]) -> Loaded:
    """The head in a checkpoint of DCSM's authors, a tree like `shapes`.

    shapes: parameters of our head, arrays or jax.ShapeDtypeStruct; a head without words takes no
    vectors. Raises WeightsError for another kind of file, and for a network of other sizes.
    """
    path = Path(path)
    if not path.is_file():
        found = f"{path} is a folder" if path.is_dir() else f"there is no file {path}"
        raise WeightsError(f"{found}; a checkpoint of DCSM's authors is a file (.pt)")
    saved = torch_archive.content(path, may_hold_objects=True)
    if not isinstance(saved, dict) or not {NETWORK, ROWS} <= saved.keys():
        raise WeightsError(
            f"{path} is no checkpoint of DCSM's authors, which has {NETWORK} and {ROWS}"
        )
    wanted = {key: tuple(value.shape) for key, value in rename.flatten(shapes).items()}
    try:
        flat = rename.load(RULES, {**saved[NETWORK], ROWS: _vectors(saved[ROWS])}, wanted, (ROWS,))
        rename.check_values(flat, wanted)
    except WeightsError as error:
        raise WeightsError(
            f"{path}: {error}. A network is made for one number of image tokens and one context "
            "length (the published ones: CLIP B/16 at 224 pixels, 30 tokens), and has no average "
            "for standardise=running"
        ) from error
    words = saved.get(WORDS)
    return Loaded(flat, None if words is None else tuple(words))


def _vectors(saved: Any) -> np.ndarray:
    """The weights of an embedding that was saved as a whole, or as its state dict or tensor."""
    if isinstance(saved, torch_archive.Inert):
        saved = (saved.state or {}).get("_parameters", {})
    if isinstance(saved, dict):
        saved = saved.get("weight")
    if not isinstance(saved, np.ndarray):
        raise WeightsError(f"{ROWS} is not an embedding")
    return saved

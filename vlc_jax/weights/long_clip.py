"""Long texts: Long-CLIP (Zhang et al. 2024, arXiv:2403.15378) and FG-CLIP (Xie et al. 2025,
arXiv:2505.05071), whose files have two tables of text positions.

The first KEPT positions are rows of one table, which was frozen, the later ones of another.
FG-CLIP reads texts in two ways, each with positions and a projection of its own: short ones of 77
tokens, as CLIP, and long ones of 248.
"""

from collections.abc import Mapping

import numpy as np

from vlc_jax.errors import WeightsError
from vlc_jax.weights import huggingface, rename
from vlc_jax.weights.position import KEPT
from vlc_jax.weights.rename import Rule, rule

_POSITIONS = "text_model.embeddings.position_embedding"
NAMES = (f"{_POSITIONS}_ori.weight", f"{_POSITIONS}_res.weight", "text_filip_projection.weight")
_LONG = f"{_POSITIONS}_long.weight"  # ours, of the two tables
_SHORT_TEXT = (f"{_POSITIONS}.weight", "text_projection.weight")
_LONG_TEXT = (_LONG, "text_filip_projection.weight")
SHORT = 77  # tokens
# the way of reading that is not used, and scales of losses on regions and hard negatives
IGNORED = (
    *(name.replace(".", r"\.") for name in (*_SHORT_TEXT, *_LONG_TEXT)),
    r"logit_scale_(finegraind|hardneg)",
)


def _joined(first: np.ndarray, later: np.ndarray) -> np.ndarray:
    if first.ndim != 2 or first.shape != later.shape:
        raise WeightsError(
            f"the two tables of text positions have the shapes {first.shape} and {later.shape}: "
            "they must be one (tokens, width)"
        )
    return np.concatenate([first[:KEPT], later[KEPT:]])


def one_table(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays of Long-CLIP's authors with the names of CLIP; those of CLIP unchanged."""
    joined, first, later = dict(arrays), "positional_embedding", "positional_embedding_res"
    if first in arrays and later in arrays:
        joined[first] = _joined(arrays[first], joined.pop(later))
    return joined


def with_long_table(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays of FG-CLIP with one table of the positions of long texts."""
    joined = dict(arrays)
    joined[_LONG] = _joined(*(joined.pop(name) for name in NAMES[:2]))
    return joined


def rules(context_length: int) -> list[Rule]:
    """Rules of FG-CLIP for a model of long texts, if its context is longer than SHORT, else of
    short ones."""
    positions, projection = _LONG_TEXT if context_length > SHORT else _SHORT_TEXT
    ours = {
        "text/position_embedding": rule(positions, "text/position_embedding"),
        "text/projection/kernel": rule(projection, "text/projection/kernel", rename.TRANSPOSED),
    }
    return [ours.get(each.ours[0], each) for each in huggingface.clip_rules()]

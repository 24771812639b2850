"""Position embeddings of weights, brought to the resolution and context length of the model."""

import math
from collections.abc import Mapping

import numpy as np

from vlc_jax.errors import WeightsError

IMAGE, TEXT = "image/position_embedding", "text/position_embedding"


def fit(
    params: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]], *, may_cut_text: bool
) -> dict[str, np.ndarray]:
    """`params` with the position embeddings as long as in `shapes`.

    Those of the image are resampled as a square grid, a class token's row is kept. Those of the
    text are cut, never stretched, and only with `may_cut_text`: where a text ends before the cut
    (causal, end-of-text pooling) the rest is never read. Raises WeightsError otherwise.
    """
    fitted = dict(params)
    extra = int("image/class_embedding" in params)
    have, want = len(params[IMAGE]), shapes[IMAGE][0]
    if have != want:
        sides = [math.isqrt(n - extra) for n in (have, want)]
        if [side**2 + extra for side in sides] != [have, want]:
            raise WeightsError(
                f"{IMAGE} has {have} rows, the model {want}: only square grids are resampled"
            )
        table = params[IMAGE]
        grid = table[extra:].reshape(sides[0], sides[0], -1)
        rows = resample(grid, sides[1]).reshape(sides[1] ** 2, -1)
        fitted[IMAGE] = np.concatenate([table[:extra], rows])
    if TEXT not in shapes:
        return fitted
    have, want = len(params[TEXT]), shapes[TEXT][0]
    if have < want or (have > want and not may_cut_text):
        raise WeightsError(
            f"the weights read texts of {have} tokens, the model {want}: set "
            f"config.text.context_length={have}" + (" or less" if may_cut_text else "")
        )
    fitted[TEXT] = params[TEXT][:want]
    return fitted


def resample(grid: np.ndarray, side: int) -> np.ndarray:
    """A (rows, columns, width) grid as (side, side, width), antialiased bicubic, float32.

    Keys' kernel with a = -1/2, widened when the grid shrinks: what Pillow, jax.image.resize and
    torch's `interpolate(mode="bicubic", antialias=True)` (open_clip) compute. Hugging Face does
    not antialias and big_vision resamples linearly.
    """
    rows, columns = (_weights(n, side) for n in grid.shape[:2])
    return np.einsum("ir,jc,rcw->ijw", rows, columns, grid.astype(np.float64)).astype(np.float32)


def _weights(have: int, want: int) -> np.ndarray:
    """(want, have), rows of sum 1: the share of each old position in each new one."""
    scale = have / want
    x = np.arange(have)[None] + 0.5 - (np.arange(want)[:, None] + 0.5) * scale
    x = np.abs(x) / max(scale, 1.0)
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    kernel = np.where(x <= 1, near, np.where(x < 2, far, 0.0))
    return kernel / kernel.sum(axis=1, keepdims=True)

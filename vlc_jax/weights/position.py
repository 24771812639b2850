"""Position embeddings and biases resampled to another resolution or window, cut to a shorter
context, or stretched to a longer one."""

import logging
import math
from collections.abc import Mapping

import numpy as np

from vlc_jax.errors import WeightsError

IMAGE, TEXT = "image/position_embedding", "text/position_embedding"
BIAS = "attention/position_bias"  # end of the paths of a Swin Transformer's tables
# Long-CLIP (Zhang et al. 2024, arXiv:2403.15378, section 3.1): well-trained rows of CLIP's text
# positions, which are kept, and new positions for each of the others.
KEPT, STRETCH = 20, 4


def fit(
    params: Mapping[str, np.ndarray],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    may_cut_text: bool,
    antialias: bool = True,
) -> dict[str, np.ndarray]:
    """`params` with position embeddings of the lengths in `shapes`.

    Image positions are resampled as a square grid (`resample`); the row of the class token stays as
    it is. Tables of relative positions are resampled to another window (`resample_biases`). Text
    positions are cut, or stretched to exactly `stretched_length`, and only with `may_cut_text`: a
    causal tower with end-of-text pooling never reads positions after the end. Raises WeightsError
    otherwise.
    """
    for path in [path for path in (IMAGE, TEXT) if path in shapes]:
        old, new = params[path].shape, shapes[path]
        if len(old) != 2 or old[1:] != tuple(new[1:]) or 0 in old:
            raise WeightsError(f"{path} has shape {old}, the model's {tuple(new)}")
    fitted = dict(params)
    if IMAGE in shapes:
        fitted[IMAGE] = _fit_image(params, shapes[IMAGE][0], antialias=antialias)
    for path in [path for path in shapes if path.endswith(BIAS)]:
        fitted[path] = _fit_biases(params[path], shapes[path], path)
    if TEXT not in shapes:
        return fitted
    old, new = len(params[TEXT]), shapes[TEXT][0]
    if may_cut_text and new == stretched_length(old):
        fitted[TEXT] = stretched(params[TEXT])
        logging.info("text positions are stretched from %d to %d as by Long-CLIP", old, new)
        return fitted
    if old < new or (old > new and not may_cut_text):
        longer = " or less"
        if length := stretched_length(old):
            longer += f", or {length}, to which they are stretched"
        raise WeightsError(
            f"the weights read texts of {old} tokens, the model {new}: set "
            f"config.text.context_length={old}" + (longer if may_cut_text else "")
        )
    fitted[TEXT] = params[TEXT][:new]
    return fitted


def stretched_length(tokens: int) -> int | None:
    """Text positions that `stretched` makes of `tokens` ones; None for too few of them."""
    return KEPT + STRETCH * (tokens - KEPT) if tokens > KEPT + 1 else None


def stretched(table: np.ndarray) -> np.ndarray:
    """Text positions of a longer context, float32: the first KEPT rows, then STRETCH rows for each
    of the others, interpolated to the next row; the last row goes on as from the one before it.

    Of CLIP's 77 rows it makes Long-CLIP's 248.
    """
    rows = table[KEPT:].astype(np.float32)
    steps = np.diff(rows, axis=0)
    steps = np.concatenate([steps, steps[-1:]])
    parts = np.arange(STRETCH, dtype=np.float32)[None, :, None] / STRETCH
    later = (rows[:, None] + parts * steps[:, None]).reshape(-1, rows.shape[1])
    return np.concatenate([table[:KEPT], later])


def _fit_image(params: Mapping[str, np.ndarray], new: int, *, antialias: bool) -> np.ndarray:
    # row 0 is outside the grid: of the class token, or of the query of a ResNet's pooling
    class_tokens = int(bool({"image/class_embedding", "image/pooling/query/kernel"} & {*params}))
    table = params[IMAGE]
    old = len(table)
    if old == new:
        return table
    old_side, new_side = (math.isqrt(n - class_tokens) for n in (old, new))
    if [side**2 + class_tokens for side in (old_side, new_side)] != [old, new] or not old_side:
        raise WeightsError(
            f"{IMAGE} has {old} rows, the model {new}: only square grids are resampled"
        )
    grid = table[class_tokens:].reshape(old_side, old_side, -1)
    patches = resample(grid, new_side, antialias=antialias).reshape(new_side**2, -1)
    return np.concatenate([table[:class_tokens], patches])


def _fit_biases(table: np.ndarray, shape: tuple[int, ...], path: str) -> np.ndarray:
    if table.shape == shape:
        return table
    sides = [math.isqrt(rows) for rows in (len(table), shape[0])]
    # a spline needs four points
    is_grid = [side**2 for side in sides] == [len(table), shape[0]] and sides[0] > 3
    if table.ndim != 2 or table.shape[1:] != shape[1:] or not is_grid:
        raise WeightsError(f"{path} has shape {table.shape}, the model's {shape}")
    grid = table.reshape(sides[0], sides[0], -1)
    return resample_biases(grid, sides[1]).reshape(shape)


def resample_biases(grid: np.ndarray, side: int) -> np.ndarray:
    """Biases of relative positions of a window as those of another one, (rows, columns, heads) ->
    (side, side, heads), float32; both sides are odd, with offset 0 in the middle.

    As BEiT and X-VLM (interpolate_relative_pos_embed): the old offsets are moved to a geometric
    progression that ends at the new largest offset, so that near ones stay in place, and a cubic
    spline runs through them (not-a-knot, of both axes).
    """
    from scipy import interpolate  # here: few weights need it, and it is slow

    reach, new = len(grid) // 2, side // 2
    low, high = 1.01, 1.5
    while high - low > 1e-6:
        ratio = (low + high) / 2
        is_long = (1 - ratio**reach) / (1 - ratio) > new
        low, high = (low, ratio) if is_long else (ratio, high)
    steps = np.cumsum(ratio ** np.arange(reach))
    places = np.concatenate([-steps[::-1], [0.0], steps])
    # the last offset may lie beyond the last place by the tolerance above
    offsets = np.clip(np.arange(-new, new + 1.0), places[0], places[-1])
    weights = interpolate.CubicSpline(places, np.eye(len(places)))(offsets)
    return np.einsum("ir,jc,rch->ijh", weights, weights, grid.astype(np.float64)).astype(np.float32)


def resample(grid: np.ndarray, side: int, *, antialias: bool = True) -> np.ndarray:
    """A (rows, columns, width) grid resampled to (side, side, width): bicubic, float32.

    antialias: Keys' kernel with a = -1/2, widened when the grid shrinks, as in Pillow,
      jax.image.resize and torch's `interpolate(mode="bicubic", antialias=True)` (open_clip, DINOv2
      with registers). False: a = -3/4, and beyond a border its nearest pixel, as torch without
      antialiasing (DINOv2). Hugging Face's CLIP does not antialias, big_vision resamples linearly.
    """
    make = _weights if antialias else _plain_weights
    rows, columns = (make(n, side) for n in grid.shape[:2])
    # float64: the weights of a row then sum to 1 to the last bit of float32.
    return np.einsum("ir,jc,rcw->ijw", rows, columns, grid.astype(np.float64)).astype(np.float32)


def _weights(old: int, new: int) -> np.ndarray:
    """Resampling matrix (new, old) of one axis; its rows sum to 1."""
    scale = old / new
    # Pixels lie at half integers (torch's align_corners=False).
    x = np.arange(old)[None] + 0.5 - (np.arange(new)[:, None] + 0.5) * scale
    x = np.abs(x) / max(scale, 1.0)  # antialiasing: the kernel is widened only when shrinking
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    kernel = np.where(x <= 1, near, np.where(x < 2, far, 0.0))
    # At the borders part of the kernel lies outside the grid, so its sum is not 1.
    return kernel / kernel.sum(axis=1, keepdims=True)


def _plain_weights(old: int, new: int) -> np.ndarray:
    """Resampling matrix (new, old) of one axis without antialiasing."""
    centre = (np.arange(new) + 0.5) * old / new - 0.5
    first = np.floor(centre).astype(int)
    weights = np.zeros((new, old))
    for tap in range(-1, 3):
        x = np.abs(centre - first - tap)
        near = (1.25 * x - 2.25) * x * x + 1
        far = ((-0.75 * x + 3.75) * x - 6) * x + 3
        places = np.clip(first + tap, 0, old - 1)
        np.add.at(weights, (np.arange(new), places), np.where(x <= 1, near, far))
    return weights

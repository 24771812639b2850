"""Lengths and cosines of feature vectors, in float64."""

import numpy as np
from jaxtyping import Float


def unit(vectors: Float[np.ndarray, "*cases embed"]) -> Float[np.ndarray, "*cases embed"]:
    """L2-normalised vectors; zero vectors stay 0."""
    vectors = np.asarray(vectors, np.float64)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def cosine(
    one: Float[np.ndarray, "cases embed"], other: Float[np.ndarray, "cases embed"]
) -> Float[np.ndarray, " cases"]:
    """Cosine of each row with the same row of `other`; exactly 1 for equal rows."""
    # 1 - |a - b|^2 / 2 instead of a . b: exact for nearly equal vectors
    return 1 - np.sum((unit(one) - unit(other)) ** 2, axis=-1) / 2

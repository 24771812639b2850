"""Multinomial logistic regression on an accelerator: scikit-learn's loss and optimiser.

A step on ImageNet's 1.28 million features of 512 numbers takes scikit-learn about 55 core seconds.
Here JAX computes loss and gradient, rows in blocks, in float32; scipy's L-BFGS takes the steps, as
in scikit-learn, and Newton's method the last ones, which read the gradient alone: near the minimum
float32 has too few digits for the loss that L-BFGS compares.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

BLOCK = 16_384  # rows at a time: with 1,000 classes 64 MiB of probabilities
NEWTON, CONJUGATE = 10, 200  # last steps, and products with the Hessian in each


class Probe(NamedTuple):
    """A fitted regression. classes_: labels of the columns, sorted (scikit-learn's name)."""

    classes_: Int[np.ndarray, " classes"]
    kernel: Float[np.ndarray, "embed classes"]
    bias: Float[np.ndarray, " classes"]

    def predict_log_proba(
        self, x: Float[np.ndarray, "cases embed"]
    ) -> Float[np.ndarray, "cases classes"]:
        """Log probabilities of the classes."""
        from scipy.special import log_softmax

        return log_softmax(x @ self.kernel + self.bias, axis=1)

    def predict(self, x: Float[np.ndarray, "cases embed"]) -> Int[np.ndarray, " cases"]:
        """The most probable label of each row."""
        return self.classes_[np.argmax(x @ self.kernel + self.bias, axis=1)]


def fit(
    x: Float[np.ndarray, "cases embed"],
    y: Int[np.ndarray, " cases"],
    c: float,
    tolerance: float,
    steps: int,
    block: int = BLOCK,
) -> Probe:
    """The minimum of mean(cross entropy) + |kernel|^2 / (2 c cases), for three classes or more.

    tolerance: largest entry of the gradient at which it stops; steps: of L-BFGS, at most so many.
    """
    # here: most evaluations need neither
    import jax
    import jax.numpy as jnp
    from scipy.optimize import minimize

    classes, targets = np.unique(y, return_inverse=True)
    number, width = x.shape
    padded = -(-number // block) * block if number > block else number
    parts = (-1, min(block, number))
    rows = np.pad(np.asarray(x, np.float32), [(0, padded - number), (0, 0)])
    labels = np.pad(targets, (0, padded - number), constant_values=-1)
    blocks = jnp.asarray(rows.reshape(*parts, width)), jnp.asarray(labels.reshape(parts))
    shape = (width + 1, len(classes))  # the last row is the bias

    loss_and_gradient = _loss_and_gradient(shape, number, c)

    def at(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(shape).astype(np.float32)
        loss, slope = loss_and_gradient(weights, blocks)
        return float(loss), np.asarray(slope, np.float64).ravel()

    # scikit-learn's options
    options = {"maxiter": steps, "maxls": 50, "gtol": tolerance, "ftol": 64 * np.finfo(float).eps}
    start = np.zeros(shape[0] * shape[1])
    fitted = minimize(at, start, method="L-BFGS-B", jac=True, options=options).x

    product = jax.jit(  # of the Hessian and a step
        lambda weights, step, blocks: jax.jvp(
            lambda x: loss_and_gradient(x, blocks)[1], (weights,), (step,)
        )[1]
    )

    def curvature(*given: np.ndarray) -> np.ndarray:
        shaped = (flat.reshape(shape).astype(np.float32) for flat in given)
        return np.asarray(product(*shaped, blocks), np.float64).ravel()

    kernel = _newton(fitted, lambda flat: at(flat)[1], curvature, tolerance).reshape(shape)
    return Probe(classes, kernel[:-1], kernel[-1])


def _loss_and_gradient(shape: tuple[int, int], number: int, c: float) -> Callable[..., Any]:
    """(weights, blocks of `number` rows and their labels) -> the regularised loss, its gradient."""
    import jax
    import jax.numpy as jnp

    @jax.jit
    def loss_and_gradient(weights: Any, blocks: Any) -> tuple[Any, Any]:
        def add(total: Any, part: Any) -> tuple[Any, None]:
            features, label = part
            features = jnp.pad(features, ((0, 0), (0, 1)), constant_values=1.0)
            # highest: TPUs and GPUs would multiply with 8 or 10 bits
            scores = jnp.dot(features, weights, precision=jax.lax.Precision.HIGHEST)
            logs = jax.nn.log_softmax(scores) * (label >= 0)[:, None]
            true = jax.nn.one_hot(label, shape[1], dtype=logs.dtype)
            error = jnp.exp(logs) * (label >= 0)[:, None] - true
            slope = jnp.dot(features.T, error, precision=jax.lax.Precision.HIGHEST)
            return (total[0] - (logs * true).sum(), total[1] + slope), None

        start = jnp.zeros(()), jnp.zeros(shape)
        (loss, slope), _ = jax.lax.scan(add, start, blocks)
        kernel = weights.at[-1].set(0.0)
        return (
            loss / number + (kernel**2).sum() / (2 * c * number),
            slope / number + kernel / (c * number),
        )

    return loss_and_gradient


def _newton(
    weights: np.ndarray,
    slope_at: Callable[[np.ndarray], np.ndarray],
    curvature: Callable[[np.ndarray, np.ndarray], np.ndarray],
    tolerance: float,
) -> np.ndarray:
    """Newton's steps, while the gradient is above `tolerance` and falls."""
    from scipy.sparse.linalg import LinearOperator, cg

    slope = slope_at(weights)
    for _ in range(NEWTON):
        if np.abs(slope).max() <= tolerance:
            break
        product = functools.partial(curvature, weights)
        hessian = LinearOperator((weights.size,) * 2, matvec=product, dtype=np.float64)
        moved = weights + cg(hessian, -slope, rtol=0.01, maxiter=CONJUGATE)[0]
        before, slope = slope, slope_at(moved)
        if np.linalg.norm(slope) >= np.linalg.norm(before):
            break
        weights = moved
    return weights

"""Towers of a model on many rows: what `cache_features` and `embed_text` store of them."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import linen as nn

from vlc_jax import build, sharding


class Tower:
    """Rows -> what `method(model, rows)` gives of them, in batches of one size.

    method: of a model and a batch of rows on the device, such as `lambda m, x: m.text(x)`.
    """

    def __init__(
        self, task: build.Task, params: Any, method: Callable[..., Any], batch_size: int
    ) -> None:
        self._mesh, self._params, self._batch_size = task.mesh, params, batch_size

        def apply(params: Any, rows: jax.Array) -> Any:
            return nn.apply(method, task.model)({"params": params}, rows)

        self._apply = jax.jit(apply, out_shardings=sharding.replicated(task.mesh))

    def __call__(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """ "pooled", and "tokens" where they are wanted, of all rows."""
        size, parts = self._batch_size, []
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            filled = np.concatenate([part, np.repeat(part[-1:], size - len(part), axis=0)])
            with jax.set_mesh(self._mesh):
                out = self._apply(
                    self._params, sharding.put_batch(self._mesh, {"rows": filled})["rows"]
                )
            found = {"pooled": out.pooled, "tokens": out.tokens}
            parts.append({k: np.asarray(x)[: len(part)] for k, x in found.items() if x is not None})
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

"""The train step, compiled."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
from jax.sharding import NamedSharding

from vlc_jax.train import flops
from vlc_jax.train.step import Batch, make_step
from vlc_jax.types import State
from vlc_jax.types.setup import Setup


class Compiled(NamedTuple):
    """A compiled program and its FLOPs."""

    program: jax.stages.Compiled
    flops: flops.Flops

    def __call__(self, *arguments: Any) -> Any:
        return self.program(*arguments)


class CompiledSteps:
    """The train step, compiled once per text shape of the batch."""

    def __init__(self, setup: Setup, frozen: Any) -> None:
        self._setup, self._frozen = setup, frozen
        self._steps: dict[tuple[int, ...], Compiled] = {}

    def __len__(self) -> int:
        return len(self._steps)

    def has(self, batch: Batch) -> bool:
        """True if the step of this batch's shape is compiled."""
        return batch["text"].shape in self._steps

    def compile(self, state: State, batch: Batch) -> None:
        """Compiles the step for this batch's shape."""
        step = compile_step(self._setup, state, self._frozen, batch)
        self._steps[batch["text"].shape] = step

    def flops(self, batch: Batch) -> float:
        """FLOPs of the compiled step of this batch's shape, for MFU."""
        return self._steps[batch["text"].shape].flops.model

    def __call__(self, state: State, batch: Batch) -> tuple[State, dict[str, jax.Array]]:
        return self._steps[batch["text"].shape](state, self._frozen, batch)


def compile_step(
    setup: Setup, state: State, frozen: Any, batch: Mapping[str, jax.Array | jax.ShapeDtypeStruct]
) -> Compiled:
    """Compiles the train step for these arrays or shapes.

    `state` is donated; the new state has the same shardings.
    """
    shardings = jax.tree.map(lambda x: x.sharding, state)
    step = jax.jit(
        make_step(setup),
        out_shardings=(shardings, NamedSharding(setup.mesh, jax.P())),
        donate_argnums=0,
    )
    # a mesh context is per thread, and this may run in another one
    with jax.set_mesh(setup.mesh):
        return compile_and_count(step, state, frozen, batch)


def compile_and_count(function: Any, *arguments: Any) -> Compiled:
    """Compiles a jitted function for these arguments, and counts the FLOPs of its trace."""
    # trace and lower apart: the jaxpr is there already, and counting it costs no second trace
    traced = function.trace(*arguments)
    return Compiled(traced.lower().compile(), flops.count(traced.jaxpr))

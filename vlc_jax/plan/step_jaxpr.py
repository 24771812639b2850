"""Large arrays and residuals of a step, computed from its jaxpr and from shapes."""

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.extend import core, source_info_util

from vlc_jax import losses
from vlc_jax.devices import sharding
from vlc_jax.encode import encoder
from vlc_jax.setup.plan_search import Planned
from vlc_jax.setup.state import state_shapes
from vlc_jax.train import flops
from vlc_jax.train import step as train_step
from vlc_jax.types import State
from vlc_jax.types.setup import Setup

GIB = 2**30


def shapes(setup: Setup) -> tuple[State, Any]:
    """Shapes and shardings of the state and of the frozen parameters."""
    parameters = setup.parameters
    frozen = sharding.place_shapes(setup.mesh, parameters.split(parameters.shapes)[1])
    return state_shapes(setup, frozen), frozen


class Program(NamedTuple):
    """A step function, and the shapes of its arguments.

    parts: "parameters", "moments", "frozen" and "batch" of the arguments.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    parts: dict[str, Any]


def program(planned: Planned) -> Program:
    """The program of a plan: a training step, or the scoring of pairs."""
    setup, batch = planned.setup, planned.batch
    if planned.is_scored:
        params = sharding.place_shapes(setup.mesh, setup.parameters.shapes)
        parts = {"parameters": params, "moments": {}, "frozen": {}, "batch": batch}
        return Program(encoder.pair_scores(setup), (params, batch), parts)
    state, frozen = shapes(setup)
    trained = state.params, state.memory  # a teacher is as large as they are
    parts = {"parameters": trained, "moments": state.opt_state, "frozen": frozen}
    return Program(train_step.make_step(setup), (state, frozen, batch), parts | {"batch": batch})


def largest_arrays(planned: Planned) -> list[str]:
    """Lines for the five largest arrays of the step, with source lines.

    Arrays that XLA fuses are listed, too, although they are never in memory.
    """
    setup = planned.setup
    sizes: dict[str, float] = {}
    for equation, _, _ in flops.equations(_jaxpr(planned)):
        for result in equation.outvars:
            if not hasattr(result.aval, "dtype") or not hasattr(result.aval.dtype, "itemsize"):
                # a random key has no itemsize
                continue
            size = result.aval.size * result.aval.dtype.itemsize / setup.mesh.size
            line = source_info_util.summarize(equation.source_info)
            line = re.sub(r"^.*?/(?=vlc_jax/|site-packages/)", "", line)
            text = f"{result.aval.str_short()} {equation.primitive} at {line}"
            sizes[text] = max(sizes.get(text, 0), size)
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:5]
    return [f"  {size / GIB:9.3f}  {text}" for text, size in largest]


def temporaries(planned: Planned) -> dict[str, int]:
    """Estimated bytes per device of a step's arrays besides its arguments, by their shapes.

    They are not all alive at once, and the compiler fuses and recomputes, so that they do not add
    up to its own figure. {} for scoring.
    """
    if planned.is_scored:
        return {}
    return {
        "kept for the backward pass": residual_bytes(planned),
        "gradients": sharding.shard_bytes(shapes(planned.setup)[0].params),
        "scores of the loss": score_bytes(planned),
    }


def residual_bytes(planned: Planned) -> int:
    """Residual memory per device: activations saved for the backward pass of one micro-batch.

    Bytes, without the step's arguments and without activations that are offloaded to the host.
    """
    setup, count = planned.setup, sharding.row_groups(planned.setup.mesh)
    optimization = setup.optimization
    rows = optimization.microbatch or planned.batch_size // optimization.sub_batches
    batch = {
        key: jax.ShapeDtypeStruct((rows // count, *x.shape[1:]), x.dtype)
        for key, x in planned.batch.items()
    }

    def pull_back(trained: Any, frozen: Any, batch: Any) -> Any:
        def features(trained: Any) -> Any:
            variables = {"params": setup.parameters.for_step(frozen, trained)}
            inputs = train_step.normalised(setup, batch)
            return setup.model.apply(variables, inputs, method="micro_features")

        return jax.vjp(features, trained)[1]

    state, frozen = shapes(setup)
    jaxpr = jax.make_jaxpr(pull_back)(state.params, frozen, batch).jaxpr
    residuals = {var for var in jaxpr.outvars if isinstance(var, core.Var)} - {*jaxpr.invars}
    avals = (var.aval for var in residuals if _is_on_device(var.aval))
    return sum(aval.size * aval.dtype.itemsize for aval in avals)


def score_bytes(planned: Planned) -> int:
    """Bytes per device of the largest float32 score array of a loss."""
    optimization, count = planned.setup.optimization, sharding.row_groups(planned.setup.mesh)
    rows = planned.batch_size // optimization.sub_batches
    local, sizes = rows // count, [0]
    for name, options in optimization.losses.items():
        hard = (f"{kind}_mask" for kind in losses.row(name, options).contrasts_all)
        texts = 1 + sum(planned.batch[key].shape[1] for key in hard if key in planned.batch)
        shape = {
            "dense": (local, rows),
            "chunked": (min(local, options.get("chunk") or local), rows),
            "ring": (local, local),
        }[options.get("implementation", "dense")]
        sizes.append(4 * math.prod(shape) * texts)
    return max(sizes)


def _is_on_device(aval: Any) -> bool:
    return hasattr(aval.dtype, "itemsize") and "host" not in str(aval.memory_space).lower()


def _jaxpr(planned: Planned) -> core.ClosedJaxpr:
    step = program(planned)
    with jax.set_mesh(planned.setup.mesh):
        return jax.make_jaxpr(step.function)(*step.arguments)

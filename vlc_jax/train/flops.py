"""FLOPs of a program, counted in its jaxpr: 2 per multiply-add of matrix products and convolutions.

Norms, activations and softmax are left out, as in open_clip's docs/model_profile.csv and in most
published MFU figures.
"""

import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
from jax.extend import core
from jax.interpreters import partial_eval

# Primitives of cuDNN's attention -> matrix products over all queries and keys: those of the model,
# and those that run. The backward pass computes the scores again.
ATTENTION = {
    "dot_product_attention_fwd_wrapper": (2, 2),
    "dot_product_attention_bwd_wrapper": (4, 5),
}
# Cross attention before every n-th block is a branch in every turn of the scan over blocks; its
# scope (models.flamingo.SCOPE; an import would pull in the models) names n.
_EVERY = re.compile(r"one_layer_in_(\d+)")


class Flops(NamedTuple):
    """FLOPs of a program, the sum over its devices.

    model: without rematerialised products, which count in hardware utilisation (HFU) but not in
      MFU.   executed: with them.
    """

    model: float
    executed: float


class Equation(NamedTuple):
    """An equation of a jaxpr.

    times: number of executions, the sum over all devices.
    is_rematerialised: whether it repeats work of the forward pass for the backward pass.
    """

    equation: core.JaxprEqn
    times: int
    is_rematerialised: bool


def count(jaxpr: core.ClosedJaxpr) -> Flops:
    """FLOPs of the equations of a jaxpr that its outputs depend on."""
    model = executed = 0
    for equation, times, is_rematerialised in equations(jaxpr):
        once = [times * flops for flops in _flops(equation)]
        model += 0 if is_rematerialised else once[0]
        executed += once[1]
    return Flops(model, executed)


def equations(jaxpr: core.ClosedJaxpr) -> Iterator[Equation]:
    """Yields the equations of a jaxpr, inner ones included, after dead code elimination.

    The compiler eliminates it, too: most of a captioner's trace is dead, scores of all pairs that
    its loss does not read.
    """
    outputs = [True] * len(jaxpr.jaxpr.outvars)
    yield from _equations(partial_eval.dce_jaxpr(jaxpr.jaxpr, outputs, instantiate=True)[0])


def _equations(jaxpr: Any, times: int = 1, is_rematerialised: bool = False) -> Iterator[Equation]:
    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        # the name that jax.checkpoint gives to what its backward pass computes again
        is_again = is_rematerialised or (
            "rematted_computation" in str(equation.source_info.name_stack)
        )
        inner = [getattr(value, "jaxpr", value) for value in jax.tree.leaves(list(params.values()))]
        inner = [value for value in inner if hasattr(value, "eqns")]
        # one branch runs; in DCSM's platform_dependent the last is the convolution, the first its
        # sum of shifted maps on CPU, which has no product to count
        if name == "cond":
            inner = inner[-1:]
        # a while loop counts once: its number of turns is not in the jaxpr
        turns = params["length"] if name == "scan" else 1
        # the jaxpr of a shard_map is of one device
        if name == "shard_map":
            turns = params["mesh"].size
        every = name == "cond" and _EVERY.search(str(equation.source_info.name_stack))
        runs = times // int(every[1]) if every else times * turns
        for value in inner:
            yield from _equations(value, runs, is_again)
        if not inner:
            yield Equation(equation, times, is_again)


def _flops(equation: core.JaxprEqn) -> tuple[float, float]:
    """FLOPs of one execution: of the model, and executed."""
    name, inputs = equation.primitive.name, equation.invars
    if name in ATTENTION:
        query, key = inputs[0].aval, inputs[1].aval
        # BTNH, or BNTH with layout 1
        length = key.shape[1 if equation.params["layout"] == 0 else 2]
        model, executed = ATTENTION[name]
        return 2 * query.size * length * model, 2 * query.size * length * executed
    if name == "dot_general":
        ((contracted, _), _) = equation.params["dimension_numbers"]
        depth = math.prod(inputs[0].aval.shape[axis] for axis in contracted)
    elif name == "conv_general_dilated":
        kernel = inputs[1].aval.shape
        features = equation.params["dimension_numbers"].rhs_spec[0]
        # the gradient of a strided convolution puts zeros between its inputs
        dilation = math.prod(equation.params["lhs_dilation"])
        depth = math.prod(kernel) / kernel[features] / dilation
    else:
        return 0, 0
    flops = 2 * depth * equation.outvars[0].aval.size
    return flops, flops

"""The training state: all that a checkpoint holds."""

from typing import Any, NamedTuple

from jaxtyping import Array


class State(NamedTuple):
    """State of training between two steps, all of it in a checkpoint; `step` counts updates.

    `params` are the trained parameters: all of them, those that are not frozen, or an adapter
    (`models.lora`) of frozen ones. `batch_stats` are the running statistics of the model (Flax's
    mutable collection of that name), which the optimizer never sees; {} for a model without any.
    """

    step: Array
    params: Any
    opt_state: Any
    batch_stats: Any

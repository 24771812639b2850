"""Time of a training by the FLOPs of its step, as docs/scaling.md has it for the recipes."""

import importlib

import jax

from studies import study
from vlc_jax.devices import chips
from vlc_jax.errors import UsageError
from vlc_jax.plan import step_jaxpr
from vlc_jax.setup import plan_search
from vlc_jax.train import flops

CHIP, SHARE = "NVIDIA A100", 0.3


def time(run: study.Run, records: int) -> str:
    """Hours of a run on one A100 in words, without its evaluations.

    records: of an epoch, for a run whose length depends on them.
    """
    if run.tool != "train":
        return "an evaluation"
    name, _, arguments = run.config.partition(":")
    module = importlib.import_module(f"vlc_jax.configs.{name.replace('/', '.')}")
    config = module.get_config(arguments)
    with config.unlocked():
        config.init_from = run.base or config.init_from
    try:
        planned = next(plan_search.planned(config))
    except UsageError as error:  # a file of text vectors, whose size is that of the model
        return f"no time, {error}"
    step = step_jaxpr.program(planned)
    with jax.set_mesh(planned.setup.mesh):
        count = flops.count(jax.jit(step.function).trace(*step.arguments).jaxpr).model
    steps = planned.steps or int(config.epochs * records / config.batch_size)
    hours = count * steps / (SHARE * chips.CHIPS[CHIP].flops) / 3600
    longest = f", if all texts had {config.text.context_length:,} tokens"
    return (
        f"{hours:,.1f} hours of one {CHIP}: {steps:,} steps of {count:.3e} FLOPs at "
        f"{SHARE:.0%} of its peak{longest if config.text.lengths else ''}"
    )

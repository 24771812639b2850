"""Time of a run by the FLOPs of its step and of its scores, as docs/scaling.md has it."""

import importlib

import jax
from ml_collections import ConfigDict

from studies import study
from vlc_jax.devices import chips
from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline import benchmarks
from vlc_jax.plan import step_jaxpr
from vlc_jax.setup import plan_search
from vlc_jax.train import flops

CHIP, SHARE = "NVIDIA A100", 0.3
PAIRS = 5  # of an image and a caption in a case: most sets have fewer, retrieval and the orders 5


def time(run: study.Run, records: int) -> str:
    """Hours of a run and of its evaluations on one A100, in words.

    records: of an epoch, for a run whose length depends on them.
    """
    name, _, arguments = run.config.partition(":")
    if run.base and run.tool == "evaluate":
        return "no time, the model is that of another run"
    module = importlib.import_module(f"vlc_jax.configs.{name.replace('/', '.')}")
    config = module.get_config(arguments)
    with config.unlocked():
        config.init_from = run.base or config.init_from
    try:
        words = [_training(config, records)] if run.tool == "train" else []
        words += [_evaluation(config)] if config.evals else []
    except UsageError as error:  # a file whose size is that of the model
        return f"no time, {error}"
    return "; ".join(words)


def _training(config: ConfigDict, records: int) -> str:
    planned = next(plan_search.planned(config))
    count = _flops(planned)
    steps = planned.steps or int(config.epochs * records / config.batch_size)
    longest = f", if all texts had {config.text.context_length:,} tokens"
    return (
        f"{_hours(count * steps)}: {steps:,} steps of {count:.3e} FLOPs at "
        f"{SHARE:.0%} of its peak{longest if config.text.lengths else ''}"
    )


def _evaluation(config: ConfigDict) -> str:
    readers = [options.get("reader", name) for name, options in config.evals.items()]
    cases = [_cases(reader) for reader in readers]
    unknown = f"{cases.count(0)} sets of unknown size" if 0 in cases else ""
    if not any(cases):
        return f"no time of the evaluation, {unknown}"
    planned = next(plan_search.planned(config, is_scored=True))
    count = _flops(planned) / planned.batch_size
    return (
        f"evaluation at most {_hours(PAIRS * count * sum(cases))}: {PAIRS} images with a caption, "
        f"{count:.3e} FLOPs each, in each of {sum(cases):,} cases{unknown and f', and {unknown}'}"
    )


def _cases(reader: str) -> int:
    """Published number of cases of a set; 0 if it is not known."""
    _, origin = benchmarks.PUBLISHED.get(reader, (None, None))
    cases = origin.cases if origin else None
    return cases if isinstance(cases, int) else sum((cases or {}).values())


def _flops(planned: plan_search.Planned) -> float:
    step = step_jaxpr.program(planned)
    with jax.set_mesh(planned.setup.mesh):
        return flops.count(jax.jit(step.function).trace(*step.arguments).jaxpr).model


def _hours(count: float) -> str:
    hours = count / (SHARE * chips.CHIPS[CHIP].flops) / 3600
    words = f"{hours:,.1f} hours" if hours >= 1 else f"{60 * hours:.1f} minutes"
    return f"{words} of one {CHIP}"

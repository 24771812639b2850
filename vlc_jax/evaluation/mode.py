"""--mode eval: the configured benchmarks on the newest parameters of a workdir."""

import hashlib
from functools import partial
from typing import Any

from vlc_jax import models
from vlc_jax.devices import runtime
from vlc_jax.encode import text_encoders
from vlc_jax.evaluation import wise_ft
from vlc_jax.evaluation.benchmarks import Evaluation
from vlc_jax.models.parameters import fingerprint
from vlc_jax.run.processes.preemption import StopSignal
from vlc_jax.run.workdir import EVAL_FIELDS, Workdir
from vlc_jax.setup import addresses, config_of_run, init_from
from vlc_jax.types.setup import Setup


def evaluate_workdir(setup: Setup, workdir: Workdir, stop: StopSignal, allow_change: bool) -> None:
    """`--mode eval`: runs the benchmarks on a workdir's latest valid checkpoint.

    Without a checkpoint they run on the weights of config.init_from.
    """
    mixture = setup.evaluation.interpolation
    workdir.check_config(setup.config, allow_change, EVAL_FIELDS, config_of_run.check)
    # interruptible: it reads and hashes gigabytes
    latest = stop.interrupt(partial(init_from.load_latest, setup, workdir.path, workdir.event))
    imported = None if latest.trained is not None else _identity(setup, latest.params)
    text_encoders.encode_others(setup.tokenizer)
    evaluation = Evaluation(setup, workdir, stop, imported)
    # before the claim: an invalid option must leave no config.json
    stop.interrupt(evaluation.read)
    claim(setup, workdir, latest.params)
    if mixture.other:
        wise_ft.evaluate(setup, workdir, evaluation, latest.variables, latest.step)
    else:
        evaluation.run(latest.variables, latest.step)
        evaluation.publish(latest.step)
        if evaluation.reused and workdir.is_writer:
            names = ", ".join(evaluation.reused)
            print(f"{names}: kept from before; delete a file to make it again")


def claim(setup: Setup, workdir: Workdir, params: Any) -> None:
    """Writes config.json and env.json of a workdir that was never trained in."""
    if (workdir.path / "config.json").exists():
        return
    # an interpolation is of one evaluation: a later one without it must find no other config
    unmixed = {"other": None, "alpha": setup.evaluation.interpolation.shares}
    workdir.claim({**setup.config, "interpolate": unmixed})
    counts = models.parameter_counts(params)
    hashes = addresses.hashes(setup.config)
    workdir.write_env(hardware=runtime.hardware(), parameters=counts, input=hashes)


def _identity(setup: Setup, params: Any) -> str:
    """Fingerprint of parameters, preprocessing, tokenizer and question.

    A workdir without checkpoints may be evaluated again with other preprocessing.
    """
    pixels = (setup.evaluation.transform, setup.config["input"]["normalisation"])
    other = (setup.model, *pixels, setup.evaluation.question, setup.tokenizer.fingerprint)
    return f"{fingerprint(params)}-{hashlib.sha256(repr(other).encode()).hexdigest()[:8]}"

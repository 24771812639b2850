"""A process of a run that ends or hangs in a moment of its own choice, and waits less for others:

  python -m tests.support.lost_process MOMENT WHAT --config FILE --workdir DIR [flags]

MOMENT: restore, compile, step (the others are in it), save, evaluation, close (it ends, after its
last line); never. WHAT: SIGKILL, SIGSTOP, SIGABRT, or hang: its main thread sleeps, the others go
on.
"""

import os
import signal
import sys
import time

from vlc_jax import main
from vlc_jax.evaluation import benchmarks
from vlc_jax.run import workdir
from vlc_jax.run.checkpoint import Checkpoints
from vlc_jax.run.processes import peers
from vlc_jax.setup import command_line
from vlc_jax.train import compiled_step

IN_STEP = 2  # calls of the step before the one that is the last


def end(what: str) -> None:
    if what == "hang":
        time.sleep(1000)
    os.kill(os.getpid(), signal.Signals[what])


def arm(moment: str, what: str) -> None:
    compile_step = compiled_step.compile_step

    def ended(*words, **options):
        end(what)

    def compiled(*words):
        step, calls = compile_step(*words), []

        def counted(*inputs):
            calls.append(1)
            if len(calls) > IN_STEP:
                end(what)
            return step(*inputs)

        return step._replace(program=counted)

    armed = {
        "restore": (Checkpoints, "_damage", ended),
        "compile": (compiled_step, "compile_step", ended),
        "step": (compiled_step, "compile_step", compiled),
        "save": (Checkpoints, "_write", ended),
        "evaluation": (benchmarks.Evaluation, "_one", ended),
        "close": (workdir.Workdir, "close", ended),
    }
    setattr(*armed[moment])


if __name__ == "__main__":
    peers.GRACE_SECONDS = 4.0
    if sys.argv[1] != "never":
        arm(*sys.argv[1:3])
    command_line.parse_flags(["lost_process", *sys.argv[3:]])
    main.main(["lost_process"])

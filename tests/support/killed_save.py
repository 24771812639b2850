"""A run in an object store that kills itself in its first save:

  python -m tests.support.killed_save MOMENT --config FILE --workdir gs://... [flags]

MOMENT: begun (nothing is written), written (the arrays are, the mark is not), marked (older steps
are still there), removing (the mark of an older step is gone, its arrays are not).
"""

import os
import signal
import sys

from vlc_jax import main
from vlc_jax.run.processes.preemption import StopSignal
from vlc_jax.run.store.step_folders import StoreSteps
from vlc_jax.setup import command_line


def kill(*words: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(moment: str) -> None:
    begin, commit = StoreSteps.begin, StoreSteps.commit

    def begun(self, step):
        begin(self, step)
        kill()

    def marked(self, step):
        commit(self, step)
        kill()

    def removing(self, step):
        (self.path / f"{step}/manifest.json").unlink()
        kill()

    armed = {
        "begun": ("begin", begun),
        "written": ("commit", kill),
        "marked": ("commit", marked),
        "removing": ("remove", removing),
    }
    setattr(StoreSteps, *armed[moment])


if __name__ == "__main__":
    arm(sys.argv[1])
    command_line.parse_flags(["killed_save", *sys.argv[2:]])
    sys.exit(main.run(StopSignal().install()))

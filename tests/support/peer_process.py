"""A process of several that computes nothing: WORKDIR INDEX COUNT WHAT_IT_DOES."""

import os
import signal
import sys
import time
from pathlib import Path

from vlc_jax.errors import PeerError, UsageError
from vlc_jax.run.processes import guard, peers
from vlc_jax.run.processes.preemption import StopSignal
from vlc_jax.run.workdir import config_diff

LOST_SECONDS, JOIN_SECONDS = 3.0, 4.0
peers.BEAT_SECONDS, peers.JOIN_SECONDS, peers.GRACE_SECONDS = 0.2, 0.05, 0.5


def main(folder: Path, index: int, count: int, does: str) -> int:
    guard.guard(folder, "here:1", LOST_SECONDS)
    stop = StopSignal().install(is_guarded=True)
    if does == "connect":  # as JAX does where the port is taken
        os.abort()
    try:
        others = peers.Peers(folder, index, count, LOST_SECONDS).start()
        others.join(JOIN_SECONDS)
        others.enter("running")
        print("joined", os.getpid(), flush=True)
        others.agree("program", {"seed": 1 if does == "differ" else 0}, config_diff)
    except (UsageError, PeerError) as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 30
    if does.isdecimal():
        return int(does)
    if does == "abort":
        os.abort()
    if does == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    for _ in range(600):
        if stop.is_set:
            print(stop.name, flush=True)
            return 75
        time.sleep(0.1)
    return 0


if __name__ == "__main__":
    code = main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    sys.stderr.flush()
    os._exit(code)

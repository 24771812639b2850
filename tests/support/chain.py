"""What a user does with a recipe, in one process: train, stop, resume, evaluate, export.

  python -m tests.support.chain EXPORTED --config FILE --workdir DIR [flags]

A SIGTERM comes after two steps, and the same command goes on; the run is evaluated again in the
end. Prints the exit codes of the commands.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from absl import flags

from vlc_jax import main
from vlc_jax.run.processes.preemption import StopSignal
from vlc_jax.setup import command_line
from vlc_jax.tools import export


def stop_after(metrics: Path, rows: int) -> None:
    """Ends this process as a scheduler does, once `metrics` has that many rows."""
    while not metrics.exists() or metrics.read_text().count("\n") < rows:
        time.sleep(0.005)
    os.kill(os.getpid(), signal.SIGTERM)


def run(exported: str, arguments: list[str]) -> list[int]:
    command_line.parse_flags(["chain", *arguments])
    workdir = Path(main.WORKDIR.value)
    words = (workdir / "metrics.jsonl", 2)
    threading.Thread(target=stop_after, args=words, daemon=True).start()
    codes = [int(main.run(StopSignal().install()))]
    if codes != [75]:  # it failed, or was never stopped
        return codes
    codes.append(int(main.run(StopSignal().install())))
    flags.FLAGS.mode = "eval"
    codes.append(int(main.run(StopSignal().install())))
    export.main(["--workdir", str(workdir), "--to", "hf", "--out", exported])
    codes.append(0)
    return codes


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], sys.argv[2:])))

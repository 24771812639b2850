"""What a run left in its workdir, and jobs of one that are waited for."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp

from tests.support import forks, helpers
from vlc_jax import weights


def losses(workdir: Path) -> list[float]:
    return [row["train/loss"] for row in helpers.rows(workdir / "metrics.jsonl")]


def saved_state(workdir: Path, step: int) -> dict:
    return ocp.StandardCheckpointer().restore(workdir / "checkpoints" / str(step) / "state")


def saved_params(workdir: Path, step: int) -> dict[str, np.ndarray]:
    """By their names."""
    return weights.flatten(saved_state(workdir, step)["params"])


def event_names(workdir: Path) -> list[str]:
    path = workdir / "events.jsonl"
    return [row["event"] for row in helpers.rows(path)] if path.exists() else []


def steps_logged(workdir: Path) -> int:
    path = workdir / "metrics.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def wait_for(condition: Callable[[], object], *jobs: forks.Job) -> None:
    """Returns when the condition holds, which it must before a job ends."""
    deadline = time.monotonic() + 600
    while not condition():
        for job in jobs:
            assert job.poll() is None, f"ended with {job.returncode}: {job.stderr.read()}"
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.02)


def flip_a_byte(path: Path) -> None:
    """In the middle of a file; path: also one in a store."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))

"""A training run in this process."""

from pathlib import Path

from ml_collections import ConfigDict

from vlc_jax.run.processes.preemption import StopSignal
from vlc_jax.run.workdir import Workdir
from vlc_jax.setup import resolve
from vlc_jax.train import loop


def train(config: ConfigDict, folder: Path) -> Path:
    """Trains `config` to its end; returns the workdir."""
    workdir = Workdir(folder)
    try:
        loop.train(resolve(config), workdir, StopSignal(), allow_change=False)
    finally:
        workdir.close()
    return workdir.path

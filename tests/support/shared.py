"""Things that are made once for all processes of one test session."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def make_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The folder `name` that make(folder) fills at the first call of any worker of pytest-xdist.

    Tests only read it; one that changes something takes a copy.
    """
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    folder, done = root / name, root / f"{name}.done"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # others wait until it is made
        if not done.exists():
            make(folder)
            done.touch()
    return folder

"""Things that are made once for all processes of one test session."""

import fcntl
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

Made = TypeVar("Made")


def make_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Made]) -> Made:
    """The value of make(folder), called by the first worker of pytest-xdist that asks for `name`.

    `folder` does not exist yet. Tests only read what is there; one that changes it takes a copy.
    """
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    done = root / f"{name}.pickle"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other workers wait until it is made
        if not done.exists():
            done.write_bytes(pickle.dumps(make(root / name)))
    return pickle.loads(done.read_bytes())

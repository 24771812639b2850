"""Executables that stand in for programs of a cluster: found first on PATH."""

import os
import time
from collections.abc import Callable
from pathlib import Path


def write(path: Path, body: str) -> None:
    """An executable bash script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{body}\n")
    path.chmod(0o755)


def environment(folder: Path, **more: object) -> dict[str, str]:
    """In which the executables of `folder` come first; more: further variables."""
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, **{name: str(value) for name, value in more.items()}}


def wait_for(condition: Callable[[], object]) -> None:
    """Returns when the condition holds, which it must within a minute."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)

"""The reference libraries run in an environment of their own; without it these tests are skipped.

VLC_PARITY_PYTHON is its interpreter; `make parity` builds it and sets the variable.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


# `python SCRIPT ARGUMENTS` by forks.py, for a caller that runs an interpreter.
PYTHON = """#!/bin/bash
output=$(mktemp)
(IFS=$'\\t'; printf '%s\\n' "$output"$'\\t'"$*") >{requests}
read -r code <{answers}
cat "$output" >&2
rm "$output"
exit "$code"
"""


@pytest.fixture(scope="session")
def python(tmp_path_factory) -> Iterator[str]:
    """An interpreter that has the reference libraries, and has imported them; it runs scripts."""
    interpreter = os.environ.get("VLC_PARITY_PYTHON")
    if not interpreter:
        pytest.skip("VLC_PARITY_PYTHON is not set: run `make parity`")
    folder = tmp_path_factory.mktemp("forks")
    pipes = folder / "requests", folder / "answers"
    for pipe in pipes:
        os.mkfifo(pipe)
    # an end of each stays open, so that neither ends between two scripts
    ends = [os.open(pipe, os.O_RDWR) for pipe in pipes]
    script = folder / "python"
    script.write_text(PYTHON.format(requests=pipes[0], answers=pipes[1]))
    script.chmod(0o755)
    forks = subprocess.Popen(
        [interpreter, Path(__file__).with_name("forks.py"), *pipes],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)},
    )
    with forks:
        yield str(script)
        forks.terminate()
    for end in ends:
        os.close(end)


@pytest.fixture(scope="session")
def there(python) -> Callable[..., None]:
    """there(script, *arguments) runs a script of this folder where the reference libraries are."""

    def run(script: str, *arguments: str | Path) -> None:
        words = [python, Path(__file__).with_name(script), *arguments]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    return run


@pytest.fixture(scope="module")
def folder(there, request, tmp_path_factory):
    """What the module's reference, SCRIPT, writes."""
    folder = tmp_path_factory.mktemp("reference")
    there(request.module.SCRIPT, folder)
    return folder


@pytest.fixture(scope="module")
def io(folder):
    """Name -> array of the reference's inputs and outputs."""
    with np.load(folder / "io.npz") as file:
        return dict(file)


@pytest.fixture(scope="session")
def reference(there, tmp_path_factory):
    """reference(case) -> folder with the weights and outputs of one case of reference.py."""
    root = tmp_path_factory.mktemp("reference")

    def write(case: str) -> Path:
        folder = root / case.replace("/", "_")
        if not folder.exists():
            there("reference.py", root, case)
        return folder

    return write

"""The reference libraries run in an environment of their own; without it these tests are skipped.

VLC_PARITY_PYTHON is its interpreter; `make parity` builds it and sets the variable.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def there(tmp_path_factory) -> Iterator[Callable[..., None]]:
    """there(script, *arguments) runs a script of this folder where the reference libraries are."""
    python = os.environ.get("VLC_PARITY_PYTHON")
    if not python:
        pytest.skip("VLC_PARITY_PYTHON is not set: run `make parity`")
    output = tmp_path_factory.mktemp("output") / "output.txt"
    forks = subprocess.Popen(
        [python, Path(__file__).with_name("forks.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)},
    )

    def run(script: str, *arguments: str | Path) -> None:
        words = (output, Path(__file__).with_name(script), *arguments)
        print(json.dumps([str(word) for word in words]), file=forks.stdin, flush=True)
        assert forks.stdout.readline() == "0\n", output.read_text()

    with forks:
        yield run
        forks.stdin.close()


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

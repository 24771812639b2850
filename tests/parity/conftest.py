"""The reference libraries run in an environment of their own; without it these tests are skipped.

VLC_PARITY_PYTHON is its interpreter; `make parity` builds it and sets the variable.
"""

import os
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def reference(tmp_path_factory):
    """reference(case) -> folder with the weights and outputs of one case of reference.py."""
    python = os.environ.get("VLC_PARITY_PYTHON")
    if not python:
        pytest.skip("VLC_PARITY_PYTHON is not set: run `make parity`")
    root, script = tmp_path_factory.mktemp("reference"), Path(__file__).with_name("reference.py")

    def write(case: str) -> Path:
        folder = root / case.replace("/", "_")
        if not folder.exists():
            done = subprocess.run(
                [python, str(script), str(root), case],
                capture_output=True,
                text=True,
                timeout=900,
                check=False,
                env={**os.environ, "HF_HUB_OFFLINE": "1"},
            )
            assert done.returncode == 0, done.stderr
        return folder

    return write

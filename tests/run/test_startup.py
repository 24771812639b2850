"""Signals that arrive while the command line imports its libraries."""

import os
import shutil
import signal
import subprocess
import sys

import pytest

import vlc_jax
from tests.support import helpers
from vlc_jax.input_pipeline.commands import interrupt

# The import that comes after the handlers says so and takes as long as it takes to be stopped. Of a
# signal just before a sleep the handler runs after it: sleeps are short.
SLOW = """
import os, time
os.write(1, os.environ["TF_CPP_MIN_LOG_LEVEL"].encode())
for _ in range(3000):
    time.sleep(0.01)
"""
CONSOLE_SCRIPT = ["-c", "from vlc_jax.__main__ import cli; cli()"]


BEFORE_A_RUN = "{}: stopped before the run had begun\n"
AGAIN = f"{interrupt.LINE}\n"


@pytest.mark.parametrize(
    ("command", "number", "code", "line"),
    [
        *(
            (command, number, code, BEFORE_A_RUN)
            for command in (["-m", "vlc_jax.main"], CONSOLE_SCRIPT)
            for number, code in ((signal.SIGTERM, 75), (signal.SIGINT, 130))
        ),
        ([*CONSOLE_SCRIPT, "check"], signal.SIGINT, 130, AGAIN),
        (["-m", "vlc_jax", "export"], signal.SIGTERM, 143, AGAIN),
    ],
)
@pytest.mark.parametrize("asked", [{}, {"TF_CPP_MIN_LOG_LEVEL": "0"}])
def test_a_signal_during_the_imports_is_one_line(tmp_path, command, number, code, line, asked):
    for name in ("jax", "numpy"):
        (tmp_path / f"{name}.py").write_text(SLOW)
    path = os.pathsep.join([str(tmp_path), str(helpers.ROOT)])
    with subprocess.Popen(
        [sys.executable, *command],
        cwd=tmp_path,
        env={"PYTHONPATH": path, **asked},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as job:
        assert job.stdout.read(1) == asked.get("TF_CPP_MIN_LOG_LEVEL", "2")
        job.send_signal(number)
        _, stderr = job.communicate(timeout=60)
    assert job.returncode == code
    assert stderr == line.format(number.name)


def test_a_checkout_without_links_says_so(tmp_path):
    """As a zip of a repository, or Windows, has them: the link is a file with its target."""
    (tmp_path / "vlc_jax").mkdir()
    (tmp_path / "vlc_jax" / "configs").write_text("../configs")
    shutil.copy(vlc_jax.__file__, tmp_path / "vlc_jax")
    program = [sys.executable, "-c", "import vlc_jax"]
    ended = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert "core.symlinks=true" in last

"""A signal ends a command with one line and the shell's code, wherever it arrives."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import helpers
from vlc_jax.__main__ import COMMANDS
from vlc_jax.input_pipeline.commands import interrupt

# `work` runs inside a command; "closed" on stdout: its files are closed.
COMMAND = """
import signal, sys, time
from vlc_jax.input_pipeline.commands import addresses, interrupt
interrupt.GRACE = {grace}

def wait(seconds=0.01):
    print("ready", flush=True)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        time.sleep(seconds)  # short: of a signal just before it the handler runs after it
{before}
@addresses.allowed
def main(arguments=None):
    try:
        {work}
    finally:
        print("closed")

sys.exit(main())
"""
WORK = {
    "waits": "wait()",
    "says what stays": """
        try:
            wait()
        except KeyboardInterrupt:
            raise KeyboardInterrupt("interrupted; shards stay") from None""",
    "another error": """
        try:
            wait()
        except KeyboardInterrupt:
            raise RuntimeError("the library failed")""",
    # as in a compilation: another thread gets the signal
    "not in Python": "signal.pthread_sigmask(signal.SIG_BLOCK, {2, 15}); wait(30)",
    "does not end": """
        try:
            wait()
        finally:
            time.sleep(30)""",
}


def interrupted(number, work, grace=5.0, times=1, before=""):
    """(exit code, stdout after "ready", stderr) of the command after `times` signals.

    before: lines before its `main`.
    """
    script = COMMAND.format(work=work, grace=grace, before=before)
    with subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=helpers.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as job:
        while job.stdout.readline() not in ("ready\n", ""):
            pass
        for _ in range(times):
            job.send_signal(number)
            time.sleep(0.05)  # two at once are one
        stdout, stderr = job.communicate(timeout=60)
    return job.returncode, stdout, stderr


@pytest.mark.parametrize(
    ("number", "work", "line"),
    [
        (signal.SIGINT, "waits", interrupt.LINE),
        (signal.SIGTERM, "says what stays", "interrupted; shards stay"),
        (signal.SIGINT, "another error", interrupt.LINE),
    ],
)
def test_files_are_closed_and_one_line_says_what_to_do(number, work, line):
    done = interrupted(number, WORK[work])
    assert done == (128 + number, "closed\n", f"{line}\n")


@pytest.mark.parametrize(
    ("number", "work"), [(signal.SIGTERM, "not in Python"), (signal.SIGINT, "does not end")]
)
def test_a_command_that_does_not_come_back_is_ended(number, work):
    code, _, line = interrupted(number, WORK[work], grace=0.05)
    assert (code, line) == (128 + number, f"{interrupt.LINE}\n")


def test_a_second_signal_does_not_wait():
    done = interrupted(signal.SIGINT, WORK["does not end"], grace=20.0, times=2)
    assert done == (130, "", f"{interrupt.LINE}\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("end", "code"), [("return 0", 0), ("sys.exit(3)", 3)])
def test_a_finished_command_keeps_its_exit_code(number, end, code):
    # `sys` loses its attributes after Python has given the signals back to the system
    late = """
import os

class Late:
    def __del__(self, write=os.write, sleep=time.sleep):
        write(1, b"ready\\n")
        sleep(0.3)

sys.late = Late()
"""
    done = interrupted(number, end, before=late)
    assert done == (code, "", "")


def test_an_error_of_its_own_leaves_a_command_as_it_is():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError), interrupt.one_line():
        _ = 1 / 0
    assert signal.getsignal(signal.SIGINT) == before


@pytest.mark.parametrize("name", [x for x in COMMANDS if x != "sweep"])  # it stops its trials
def test_every_command_is_interrupted_so(name):
    path = Path(*COMMANDS[name][0].split("."))
    path = helpers.ROOT / (path / "__main__.py" if (helpers.ROOT / path).is_dir() else f"{path}.py")
    source = path.read_text()
    decorated = r"@(functools.partial\()?addresses.allowed.*\ndef main\("
    made = r"main = (addresses.command|command.main)\("
    assert re.search(f"^({decorated}|{made})", source, re.M) or "command.start" in source

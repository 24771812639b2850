"""launch/supervise.sh: which exit codes it restarts on, how often, after what, and signals."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import helpers, stand_ins

# Ends with the codes of its arguments, one for each start, counted in a file; then with 0.
COUNTED = 'n=$(wc -l <starts); echo >>starts; shift "$n"; exit "${1:-0}"'


@pytest.fixture
def folder(tmp_path):
    """With an empty list of starts, and a sleep that records its time and takes none."""
    (tmp_path / "starts").touch()
    stand_ins.write(tmp_path / "bin/sleep", 'echo "$1" >>slept')
    return tmp_path


def supervise(folder: Path, *words: object, **settings: int) -> subprocess.CompletedProcess:
    env = stand_ins.environment(folder / "bin", **settings)
    script = helpers.ROOT / "launch/supervise.sh"
    return helpers.program(script, *words, cwd=folder, env=env, timeout=60)


def starts(folder: Path) -> int:
    return len((folder / "starts").read_text().splitlines())


def slept(folder: Path) -> list[int]:
    path = folder / "slept"
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_it_restarts_on_infrastructure_hang_and_preemption(folder):
    done = supervise(folder, "bash", "-c", COUNTED, "run", 30, 31, 75)
    assert done.returncode == 0, done.stderr
    assert starts(folder) == 4
    assert slept(folder) == [10, 20, 40]
    assert "ended with 75; restart 3 of 10 in 40 s" in done.stderr


@pytest.mark.parametrize("code", [0, 1, 2, 3, 10, 20, 130, 143])
def test_it_does_not_restart_on_any_other_code(folder, code):
    assert supervise(folder, "bash", "-c", COUNTED, "run", code).returncode == code
    assert starts(folder) == 1
    assert slept(folder) == []


def test_waits_stop_growing_and_restarts_end(folder):
    settings = {"VLC_RESTARTS": 4, "VLC_RESTART_WAIT": 3, "VLC_RESTART_WAIT_MAX": 7}
    done = supervise(folder, "bash", "-c", COUNTED, "run", *[31] * 9, **settings)
    assert done.returncode == 31
    assert starts(folder) == 5
    assert slept(folder) == [3, 6, 7, 7]
    assert done.stderr.splitlines()[-1].endswith("ended with 31 after 4 restarts")


def test_after_a_long_run_the_count_begins_anew(folder):
    settings = {"VLC_RESTARTS": 1, "VLC_RESTART_RESET": 0}  # every run is long
    done = supervise(folder, "bash", "-c", COUNTED, "run", *[30] * 5, **settings)
    assert done.returncode == 0, done.stderr
    assert slept(folder) == [10] * 5


# Ready, it waits for a signal, lists it, and ends with 75 as a run does. The signals are blocked: a
# handler of one that came just before a sleep would run only after it.
STOPPED = """
import signal, sys
signals = {signal.SIGTERM, signal.SIGINT}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
print("ready", flush=True)
print(signal.Signals(signal.sigwait(signals)).name, flush=True)
again = signal.sigtimedwait(signals, 0.2)
sys.exit(75 if again is None else 1)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_passed_on_once_and_ends_the_restarts(folder, number):
    job = subprocess.Popen(
        [helpers.ROOT / "launch/supervise.sh", sys.executable, "-c", STOPPED],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert job.stdout.readline() == "ready\n"
    os.killpg(job.pid, number)  # as a terminal does with SIGINT
    stdout, stderr = job.communicate(timeout=60)
    assert job.returncode == 75, stderr
    assert stdout == "SIGTERM\n"
    assert "restart" not in stderr


def test_a_signal_while_it_waits_ends_it_with_the_last_code(folder):
    job = subprocess.Popen(
        [helpers.ROOT / "launch/supervise.sh", "bash", "-c", "exit 30"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "restart 1 of 10 in 10 s" in job.stderr.readline()
    job.send_signal(signal.SIGTERM)
    assert job.wait(timeout=60) == 30
    job.stderr.close()


@pytest.mark.parametrize(
    ("words", "settings", "says"),
    [
        ((), {}, "the command is missing"),
        (("true",), {"VLC_RESTARTS": "many"}, "VLC_RESTARTS must be a whole number"),
        (("true",), {"VLC_RESTART_WAIT": "0.5"}, "VLC_RESTART_WAIT must be a whole number"),
    ],
)
def test_a_wrong_request_is_refused(folder, words, settings, says):
    done = supervise(folder, *words, **settings)
    assert done.returncode == 2
    assert says in done.stderr.splitlines()[0]

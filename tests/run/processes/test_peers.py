"""Processes of one run: absent, different, lost, stopped, signalled; none of them computes."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from tests.support import forks, helpers
from tests.support.marks import slow_but

SCRIPT = helpers.ROOT / "tests" / "support" / "peer_process.py"
LIMIT = 60  # seconds; a loaded machine is slow


def start(folder, *does):
    """A process for each of `does` that is not None."""
    return [
        forks.Job(
            [str(SCRIPT), str(folder), str(index), str(len(does)), what],
            helpers.ROOT,
            helpers.environment(),
        )
        for index, what in enumerate(does)
        if what is not None
    ]


def test_a_process_that_ends_slowly_prints_nothing(tmp_path):
    words = """import atexit, sys, time; from vlc_jax.run.processes import peers
peers.BEAT_SECONDS = peers.JOIN_SECONDS = 0.05; peers.Peers(sys.argv[1], 0, 2, 100.0).start()
atexit.register(time.sleep, 1); time.sleep(0.3)"""
    done = subprocess.run([sys.executable, "-c", words, tmp_path], cwd=helpers.ROOT,
                          env=helpers.environment(), capture_output=True)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")


def joined(job):
    """The id of the guarded process, once all are there."""
    word, pid = job.stdout.readline().split()
    assert word == "joined"
    return int(pid)


def ends(jobs):
    """Exit codes and what was printed."""
    texts = [job.communicate(LIMIT)[1] for job in jobs]
    return [job.returncode for job in jobs], texts


def test_processes_that_end_well_leave_each_other_alone(tmp_path):
    assert ends(start(tmp_path, "0", "0", "0")) == ([0, 0, 0], ["", "", ""])


@pytest.mark.parametrize("lost", slow_but((0,), (0, 1)))
def test_a_killed_process_is_named_by_the_others(tmp_path, lost):
    jobs = start(tmp_path, "wait", "wait", "wait")
    pids = [joined(job) for job in jobs]
    os.kill(pids[lost], signal.SIGKILL)
    codes, texts = ends(jobs)
    assert codes == [137 if index == lost else 30 for index in range(3)], texts
    for index in {0, 1, 2} - {lost}:
        assert texts[index].startswith(f"Peer: process {lost} of 3 (host "), texts
        assert f"pid {pids[lost]}) ended with 137; this one cannot go on" in texts[index]


@pytest.mark.parametrize("lost", slow_but((0,), (0, 1)))
def test_a_host_that_is_gone_is_lost_after_the_limit(tmp_path, lost):
    jobs = start(tmp_path, "wait", "wait")
    child = psutil.Process([joined(job) for job in jobs][lost])
    jobs[lost].kill()  # the parent: nobody writes how the child ended
    codes, texts = ends([jobs[1 - lost]])
    assert codes == [30]
    assert f"process {lost} of 2" in texts[0]
    assert "has shown no sign of life for 3 s" in texts[0]
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    ends([jobs[lost]])


def test_a_stopped_process_is_ended_as_a_hang(tmp_path):
    codes, texts = ends(start(tmp_path, "wait", "stop"))
    assert codes[1] == 31
    assert "this process showed no sign of life for 3 s" in texts[1]
    assert codes[0] in (30, 31)  # it may see the silence first, or the code
    assert "process 1 of 2" in texts[0]


@pytest.mark.parametrize("code", slow_but(("75",), ("2", "31", "75")))
def test_an_end_that_would_come_again_is_shared(tmp_path, code):
    codes, texts = ends(start(tmp_path, "wait", code))
    assert codes == [int(code), int(code)]
    assert f"ended with {code}, and so does this one" in texts[0]


@pytest.mark.parametrize("crashed", slow_but((0,), (0, 1)))
def test_a_crash_is_infrastructure_and_not_blamed_on_others(tmp_path, crashed):
    does = ["wait", "wait"]
    does[crashed] = "abort"
    codes, texts = ends(start(tmp_path, *does))
    assert codes == [30, 30]
    assert "JAX ended this process with 134; the output of JAX is in" in texts[crashed]
    assert texts[crashed].count("\n") == 1  # the stacks are in a file
    assert any("Fatal" in path.read_text() for path in (tmp_path / "logs").iterdir())
    assert f"process {crashed} of 2" in texts[1 - crashed]


@pytest.mark.slow
def test_a_crash_after_another_process_was_lost_names_that_one(tmp_path):
    codes, texts = ends(start(tmp_path, "2", "abort"))
    assert codes == [2, 2]
    assert "process 0 of 2" in texts[1]


def test_an_absent_process_is_told_about_the_coordinator(tmp_path):
    codes, texts = ends(start(tmp_path, "connect"))
    assert codes == [30]
    assert "could not connect the processes through --coordinator=here:1" in texts[0]


@pytest.mark.slow
def test_absent_processes_are_named(tmp_path):
    first, last = start(tmp_path, "wait", None, "wait")
    codes, texts = ends([first, last])
    assert codes == [30, 30]
    assert "1 of 3 processes did not start within 4 s: process 1. All need the same" in texts[0]
    # it learns of process 0, and through it of the others
    assert "process 1" in texts[1] or "process 0 ended with 30 before" in texts[1]


def test_a_second_job_is_refused_and_the_first_goes_on(tmp_path):
    jobs = start(tmp_path, "wait", "wait")
    pids = [joined(job) for job in jobs]
    codes, texts = ends(start(tmp_path, "0", "0"))
    assert codes == [2, 2]
    for pid, text in zip(pids, texts, strict=True):
        assert f"is running already, on host {os.uname().nodename} with pid {pid}; stop it" in text
    for job in jobs:
        job.send_signal(signal.SIGTERM)
    assert ends(jobs)[0] == [75, 75]


@pytest.mark.slow
def test_after_a_kill_the_same_command_starts_again(tmp_path):
    jobs = start(tmp_path, "wait", "wait")
    for job in jobs:
        joined(job)
        job.kill()
    ends(jobs)
    assert ends(start(tmp_path, "0", "0"))[0] == [0, 0]


def test_processes_that_differ_end_with_the_difference(tmp_path):
    codes, texts = ends(start(tmp_path, "wait", "wait", "differ"))
    assert codes == [2, 2, 2]
    for text in texts:
        assert text == "process 2 has another program than process 0 (0 -> 2):\n  seed: 0 -> 1\n"


def test_a_signal_to_parent_and_child_counts_once(tmp_path):
    (job,) = start(tmp_path, "wait")
    child = joined(job)
    os.kill(child, signal.SIGTERM)
    job.send_signal(signal.SIGTERM)
    assert job.stdout.readline() == "SIGTERM\n"
    assert ends([job])[0] == [75]


def test_a_second_signal_ends_at_once(tmp_path):
    (job,) = start(tmp_path, "wait")
    child = joined(job)
    # both before it looks: the second is not of one that is saving
    os.kill(child, signal.SIGSTOP)
    os.kill(child, signal.SIGUSR1)
    os.kill(child, signal.SIGUSR2)
    os.kill(child, signal.SIGCONT)
    assert ends([job])[0][0] in (143, 130)

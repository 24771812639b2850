"""launch/local.sh: one run as several processes on this machine."""

import signal
import subprocess

import psutil
import pytest

from tests.support import forks, helpers
from tests.support.runs import event_names, steps_logged, wait_for
from vlc_jax.errors import ExitCode

pytestmark = pytest.mark.slow


def launch(*words):
    return subprocess.Popen(
        ["launch/local.sh", *map(str, words)],
        cwd=helpers.ROOT,
        env={**helpers.environment(), "PYTHON": forks.stand_in(helpers.environment())},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "the number of processes must be at least 1, not ''"),
        (("0", "4"), "the number of processes must be at least 1, not '0'"),
        (("2", "four"), "the devices of a process must be at least 1, not 'four'"),
        (("2", "4", "--config", helpers.TINY), "--workdir DIR is missing"),
        (("2", "4", "--process_id=1"), "--process_id=1 is set here, for every process"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_starts(words, says):
    job = launch(*words)
    stderr = job.communicate(timeout=30)[1]
    assert job.returncode == 2
    assert stderr.splitlines()[0] == f"launch/local.sh: {says}"


def test_a_refused_config_is_said_and_its_code_returned(tmp_path):
    words = helpers.words(helpers.TINY, tmp_path / "run", "--config.batch_size=30")
    job = launch(2, 2, *words[2:])
    stderr = job.communicate(timeout=120)[1]
    assert job.returncode == 2, stderr
    assert "30 is not divisible by 4 devices" in stderr
    assert "of 2 ended with 2" in stderr


def start(workdir):
    """Two processes of a run that has begun."""
    job = launch(2, 1, *helpers.words(helpers.TINY + ":steps=1000", workdir)[2:])
    wait_for(lambda: "start" in event_names(workdir), job)
    return job, psutil.Process(job.pid).children()


def test_a_signal_reaches_all_processes_once_and_they_save(tmp_path):
    job, processes = start(tmp_path / "run")
    assert len(processes) == 2
    wait_for(lambda: steps_logged(tmp_path / "run"), job)  # until one is there to be saved
    job.send_signal(signal.SIGTERM)
    stderr = job.communicate(timeout=120)[1]
    assert job.returncode == 75, stderr
    assert not any(process.is_running() for process in processes)
    assert list((tmp_path / "run/checkpoints").glob("[0-9]*"))


def test_when_one_process_dies_the_others_are_ended(tmp_path):
    job, processes = start(tmp_path / "run")
    processes[1].kill()
    stderr = job.communicate(timeout=120)[1]
    # what launch/supervise.sh restarts on, not 137: the others save their state or lose a process
    assert job.returncode in (ExitCode.INFRASTRUCTURE, ExitCode.PREEMPTED), stderr
    assert "process 1 of 2 ended with 137" in stderr
    assert not any(process.is_running() for process in processes)

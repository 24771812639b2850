"""The first signal asks, the second ends; a call that cannot be interrupted is left behind."""

import os
import signal
import subprocess
import sys
import threading

import jax
import pytest

from vlc_jax.errors import PreemptedError
from vlc_jax.run.processes.preemption import StopSignal

WAIT = """
import time
from vlc_jax.run.processes.preemption import StopSignal
stop = StopSignal().install()
print("ready", flush=True)
while True:
    time.sleep(0.01)
    if stop.is_set:
        print(stop.name, flush=True)
"""


@pytest.fixture
def stop():
    old = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
    yield StopSignal().install()
    for number, handler in old.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_sets_the_flag_the_second_exits(number):
    with subprocess.Popen(
        [sys.executable, "-c", WAIT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as job:
        assert job.stdout.readline() == b"ready\n"
        job.send_signal(number)
        assert job.stdout.readline().decode().strip() == number.name
        job.send_signal(number)
        assert job.wait(timeout=60) == 128 + number


def test_check_raises_only_after_a_signal(stop):
    stop.check()
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(PreemptedError, match="SIGTERM"):
        stop.check()


def test_interrupt_leaves_long_work_behind(stop):
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    go_on, done = threading.Event(), []
    with pytest.raises(PreemptedError, match="SIGINT"):
        stop.interrupt(lambda: done.append(go_on.wait(60)))
    assert not done
    go_on.set()


def test_several_processes_are_not_interrupted(stop, monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop.interrupt(threading.current_thread) is threading.main_thread()


def test_interrupt_gives_the_result_or_the_error(stop):
    assert stop.interrupt(lambda: 3) == 3
    with pytest.raises(KeyError, match="lost"):
        stop.interrupt(lambda: {}["lost"])

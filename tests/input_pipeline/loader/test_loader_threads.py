"""Threads and worker processes of the loader: waiting, errors, and their end."""

import multiprocessing
import os
import re
import signal
import sys
import threading
import time

import numpy as np
import pytest

from tests.support import helpers
from tests.support.numbered import Numbered, drain, loader, take
from vlc_jax.input_pipeline.images.transforms import ImageTransform
from vlc_jax.input_pipeline.loader import loader as loader_module
from vlc_jax.input_pipeline.loader.workers import WorkerError


def test_no_thread_imports_grain():
    """Its import makes all others lazy for a moment, those of jax in another thread, too."""
    script = (
        "import builtins, sys, threading\n"
        "from tests.support import numbered\n"
        "found, real = set(), builtins.__import__\n"
        "def noting(name, *others, **more):\n"
        "    if name.startswith('grain') and name not in sys.modules:\n"
        "        found.add(threading.current_thread().name)\n"
        "    return real(name, *others, **more)\n"
        "builtins.__import__ = noting\n"
        "numbered.take(1)\n"
        "print(found)"
    )
    done = helpers.program(sys.executable, "-c", script)
    assert done.stdout.strip() == "{'MainThread'}", done.stderr


class Slow(Numbered):
    """Waits for `event` before it gives a record."""

    def __init__(self):
        super().__init__()
        self.event = threading.Event()

    def __getitem__(self, index):
        self.event.wait()
        return super().__getitem__(index)


def test_waiting_can_be_interrupted_to_look_for_signals():
    source = Slow()
    with loader(source) as batches:
        begin = time.monotonic()
        assert batches.next(timeout=0.05) is None
        assert batches.next(timeout=0.0) is None
        assert time.monotonic() - begin < 5
        assert batches.step == 0
        source.event.set()
        got = batches.next(timeout=30)
        assert got is not None
        assert batches.step == 1
    np.testing.assert_array_equal(got["id"], take(1)[0]["id"])


def test_batches_are_made_ahead_while_nobody_asks():
    made = []

    class Counting(Numbered):
        def __getitem__(self, index):
            made.append(index)
            return super().__getitem__(index)

    with loader(Counting(), threads=1):
        deadline = time.monotonic() + 20
        while len(made) < 16 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)
        assert len(made) == 16  # two batches of eight, and not more: memory is bounded


class Failing(Numbered):
    def __getitem__(self, index):
        raise ZeroDivisionError("a fault in the source")


def test_an_exception_in_a_thread_reaches_the_consumer():
    with loader(Failing()) as batches, pytest.raises(ZeroDivisionError, match="a fault"):
        next(batches)


def test_close_ends_threads_in_the_middle_of_a_batch():
    class Endless(Numbered):
        def __getitem__(self, index):
            time.sleep(0.02)
            return super().__getitem__(index)

    before = set(threading.enumerate())
    batches = loader(Endless(), batch_size=10_000, threads=3)
    time.sleep(0.05)
    begin = time.monotonic()
    batches.close()
    batches.close()
    assert time.monotonic() - begin < 5  # a batch would take minutes
    assert set(threading.enumerate()) <= before
    with pytest.raises(ValueError, match="closed"):
        next(batches)


def kill(name, number=signal.SIGKILL):
    """Sends a signal to a worker process."""
    (pid,) = [p.pid for p in multiprocessing.active_children() if p.name == name]
    os.kill(pid, number)


# Of pictures that are larger than what a socket holds: whoever is killed owes one.
LARGE = {"transform": ImageTransform(128), "workers": 2, "threads": 1}


def test_a_killed_worker_is_started_again_once(caplog):
    expected = take(7, transform=ImageTransform(128))
    with loader(**LARGE) as batches:
        got = [next(batches) for _ in range(2)]
        kill("loader worker 2 of 2")
        got += [next(batches) for _ in range(5)]
        for one, other in zip(got, expected, strict=True):
            assert one.keys() == other.keys()
            assert all(np.array_equal(one[key], other[key]) for key in one)
        (line,) = caplog.messages
        assert re.match(r"loader worker 2 of 2 \(process \d+\) was killed by SIGKILL; it is", line)
        kill("loader worker 1 of 2")  # another one
        drain(batches, 4)
        assert len(caplog.messages) == 2
        kill("loader worker 2 of 2")
        with pytest.raises(WorkerError, match=r"^loader worker 2 of 2 \(.*SIGKILL, its second"):
            drain(batches)
        with pytest.raises(WorkerError):  # no third one
            next(batches)


def test_a_wait_for_a_stopped_worker_is_said_with_its_name(caplog, monkeypatch):
    monkeypatch.setattr(loader_module, "_WAIT_REPORT_S", 0.1)
    with loader(**LARGE) as batches:
        next(batches)
        kill("loader worker 2 of 2", signal.SIGSTOP)
        for _ in range(100):
            batches.next(timeout=0.2)
            if "stopped" in caplog.text:
                break
        assert re.match(
            r"no batch for \d+ s, waiting for loader worker 2 of 2 \(process \d+, stopped\)",
            caplog.messages[-1],
        )
        kill("loader worker 2 of 2", signal.SIGCONT)
        assert batches.next(timeout=60) is not None


def test_a_wait_for_hanging_storage_is_said_ever_rarer(caplog, monkeypatch):
    monkeypatch.setattr(loader_module, "_WAIT_REPORT_S", 0.05)
    source = Slow()
    with loader(source) as batches:
        assert batches.next(timeout=0.7) is None
        assert 1 <= len(caplog.messages) <= 4  # after .05, .1, .2 and .4 s
        assert "is the storage hanging?" in caplog.text
        source.event.set()


def test_close_kills_workers_that_wait_for_hanging_storage(caplog):
    class Hanging(Numbered):
        def __getitem__(self, index):
            if index == 3:
                time.sleep(3600)
            return super().__getitem__(index)

    main = sys.modules["__main__"].__spec__
    with loader(Hanging(), workers=2, threads=1) as batches:
        while batches.next(timeout=0.5) is not None or batches.step == 0:
            pass
        assert len(multiprocessing.active_children()) == 2
    assert sys.modules["__main__"].__spec__ is main
    assert multiprocessing.active_children() == []
    assert not [t for t in threading.enumerate() if t.name.startswith("loader")]
    assert caplog.messages == []

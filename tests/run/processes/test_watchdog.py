"""The watchdog ends what makes no progress, and nothing else."""

import threading
import time

import pytest

from vlc_jax.run.metrics import StepClock
from vlc_jax.run.processes import watchdog
from vlc_jax.run.processes.watchdog import Watchdog


@pytest.fixture
def ended(monkeypatch):
    """Set, with the exit code, when the watchdog ends the process."""
    event = threading.Event()

    def end(code):
        event.code = code
        event.set()

    monkeypatch.setattr(watchdog.os, "_exit", end)
    monkeypatch.setattr(watchdog, "POLL_SECONDS", 0.02)
    return event


def make(tmp_path, said, **options):
    clock = StepClock(1, 1, 1.0)
    options = {"seconds": 0.2, "factor": 2.0, **options}
    dog = Watchdog(clock, stacks=tmp_path / "stacks.txt", on_hang=said.append, **options)
    return clock, dog


def test_a_hang_ends_with_31_and_the_stacks_of_all_threads(tmp_path, ended, capfd):
    said = []
    make(tmp_path, said, announce=lambda: said.append(ended.is_set()))
    assert ended.wait(30)
    assert ended.code == 31
    assert said[1:] == [False]  # the others know of it before, behind the reason
    assert "test_a_hang_ends_with_31" in (tmp_path / "stacks.txt").read_text()
    assert said[0].startswith("no step finished for ")
    assert str(tmp_path / "stacks.txt") in capfd.readouterr().err


def test_a_hang_of_another_process_leaves_stacks_here_too(tmp_path, ended, capfd):
    found = []
    clock, _ = make(tmp_path, [], seconds=1000.0, lost=lambda: found[-1] if found else None)
    found.append((30, "process 1 of 2 is gone"))  # which another thread says and ends
    with clock.paused("evaluation"):  # it is in no step
        assert not ended.wait(0.2)
        found.append((31, "process 1 of 2 ended with 31, and so does this one"))
        assert ended.wait(30)
    assert ended.code == 31
    assert "test_a_hang_of_another_process" in (tmp_path / "stacks.txt").read_text()
    assert capfd.readouterr().err.startswith("Peer: process 1 of 2 ended with 31, and so does")


def test_slow_storage_for_the_last_words_does_not_hold_it_up(tmp_path, ended, monkeypatch):
    monkeypatch.setattr(watchdog, "LAST_WORDS_SECONDS", 0.1)
    never = threading.Event()
    clock = StepClock(1, 1, 1.0)
    Watchdog(clock, 0.1, 0.0, tmp_path / "no" / "folder", on_hang=lambda _: never.wait(60))
    assert ended.wait(30)
    never.set()


def test_a_pause_and_steps_are_no_hang(tmp_path, ended):
    clock, dog = make(tmp_path, [], seconds=1.5)
    with clock.paused("evaluation"):
        assert not ended.wait(2.5)
    for _ in range(50):
        clock.tick(1.0)
        assert not ended.wait(0.05)
    dog.close()


def test_slow_steps_have_a_longer_limit(tmp_path, ended):
    clock, dog = make(tmp_path, [], seconds=0.1, factor=100.0)
    clock.elapsed, clock.steps = 10.0, 1
    assert not ended.wait(1)
    dog.close()


def test_zero_seconds_is_no_watchdog(tmp_path, ended):
    before = threading.active_count()
    make(tmp_path, [], seconds=0.0)
    assert threading.active_count() == before
    time.sleep(0.1)
    assert not ended.is_set()

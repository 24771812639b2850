"""Shares of a machine, the order of items, signals and errors."""

import os
import signal
import threading

import pytest

from tests.support.runs import wait_for
from vlc_jax.tools import scheduler

# Lists what it is sent and ends with 75, as a run does; the file in $0 says that it is ready.
STOPPED = (
    'trap "echo SIGTERM >>\\"$0\\"; exit 75" TERM; echo ready >>"$0"; '
    "for i in {1..600}; do sleep 0.1; done"
)


def share(jobs=1):
    return scheduler.shares(1) * jobs


def test_shares_divide_cores_and_gpus(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 4})
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert scheduler.shares(2) == [([0, 2, 4], []), ([1, 3], [])]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,7")
    assert [each.gpus for each in scheduler.shares(2)] == [["4", "7"], ["5"]]
    with pytest.raises(ValueError, match="4 jobs at a time do not fit 5 cores and 3 GPUs; use 1"):
        scheduler.shares(4)


def test_an_item_waits_for_the_one_that_it_needs():
    todo, done = ["first", "second"], []

    def take():
        if not todo:
            return None
        if todo[0] == "second" and "first" not in done:
            return scheduler.LATER
        return todo.pop(0)

    def do(item, part):
        if item == "second":
            assert done == ["first"]
        return item

    scheduler.Scheduler(share(2), take, do, lambda item, result: done.append(result)).run()
    assert done == ["first", "second"]


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_signal_is_passed_on_once(tmp_path, is_elsewhere):
    """is_elsewhere: the system gives the signal to another thread than the main one."""
    todo, codes, log = ["run", "never"], [], tmp_path / "log"

    def do(item, part):
        # else thread and process would inherit the mask of the main thread
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        return runs.process(["bash", "-c", STOPPED, str(tmp_path / "sent")], tmp_path, log, part)

    def stop():
        wait_for((tmp_path / "sent").exists)
        os.kill(os.getpid(), signal.SIGTERM)

    runs = scheduler.Scheduler(
        share(), lambda: todo.pop(0), do, lambda item, code: codes.append(code)
    )
    before = signal.getsignal(signal.SIGTERM)
    sender = threading.Thread(target=stop)
    sender.start()
    if is_elsewhere:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        runs.run()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    sender.join()
    assert runs.is_stopped
    assert codes == [75]
    assert todo == ["never"]
    assert (tmp_path / "sent").read_text().split() == ["ready", "SIGTERM"]
    assert signal.getsignal(signal.SIGTERM) == before


def test_an_error_stops_all_and_is_raised(tmp_path):
    todo = ["run", "broken"]

    def do(item, part):
        if item == "broken":
            wait_for((tmp_path / "sent").exists)
            raise ValueError("broken")
        command = ["bash", "-c", STOPPED, str(tmp_path / "sent")]
        return runs.process(command, tmp_path, tmp_path / "log", part)

    runs = scheduler.Scheduler(share(2), lambda: todo.pop(0), do, lambda item, code: None)
    with pytest.raises(ValueError, match="broken"):
        runs.run()
    assert (tmp_path / "sent").read_text().split() == ["ready", "SIGTERM"]


def test_a_process_has_its_gpus_large_pages_and_a_code_as_in_a_shell(tmp_path, monkeypatch):
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    runs = scheduler.Scheduler(share(), lambda: None, lambda *_: None, lambda *_: None)
    part = share()[0]._replace(gpus=["3", "5"])
    log = tmp_path / "log"
    command = ["bash", "-c", 'echo "$CUDA_VISIBLE_DEVICES $GLIBC_TUNABLES"; kill -s KILL $$']
    assert runs.process(command, tmp_path, log, part) == 128 + signal.SIGKILL
    assert runs.process(["bash", "-c", "exit 31"], tmp_path, log, part) == 31
    assert log.read_text() == "3,5 glibc.malloc.hugetlb=1\n"

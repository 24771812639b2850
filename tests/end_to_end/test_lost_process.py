"""One of two processes is lost or hangs in any moment: both end, and the same command goes on."""

import pytest

from tests.end_to_end.test_devices import assert_same_losses, free_port
from tests.support import forks, helpers

pytestmark = pytest.mark.slow

STEPS = helpers.TINY + ":steps=6"
FLAGS = ("--config.checkpoint.every=1", "--config.eval.every=3", "--lost_seconds=5")
NEVER, USUAL = ("never", ""), ("warning: ", "step ", "resumed")  # USUAL: beginnings of lines
# One start after the other in the same workdir: each resumes what those before have left, and two
# of the six steps are taken before one is lost in a step. A kill in every moment.
STARTS = [
    ("compile", "SIGKILL"),
    ("step", "hang"),
    ("restore", "SIGKILL"),
    ("save", "SIGSTOP"),
    ("evaluation", "SIGKILL"),
    ("step", "SIGKILL"),
]


def start(workdir, *does, flags=()):
    """A process of one device for each of `does`: the moment and what happens then, as
    tests/support/lost_process.py has them."""
    common = (f"--coordinator=127.0.0.1:{free_port()}", f"--num_processes={len(does)}", *FLAGS)
    return [
        forks.Job(
            [
                *("-m", "tests.support.lost_process", *what),
                *helpers.words(STEPS, workdir, *common, f"--process_id={index}", *flags)[2:],
            ],
            helpers.ROOT,
            helpers.environment(),
        )
        for index, what in enumerate(does)
    ]


def ends(jobs):
    """Exit codes; and the lines that were printed, but warnings and those of steps and resumes."""
    texts = [job.communicate(timeout=120)[1].splitlines() for job in jobs]
    codes = [job.returncode for job in jobs]
    return codes, [[x for x in text if not x.startswith(USUAL)] for text in texts]


def check_hang(workdir, moment):
    limits = ("--config.watchdog.seconds=4", "--config.watchdog.steps=1")
    codes, lines = ends(start(workdir, NEVER, (moment, "hang"), flags=limits))
    assert codes == [31, 31], lines
    assert any(line[0].startswith("Hang: no step finished for ") for line in lines), lines
    # the other process waits for this one: it hangs, too, learns of it, or its wait fails
    assert "the stacks of all threads are in" in lines[1][0], lines
    stacks = (workdir / "logs" / "stacks_001.txt").read_text()
    assert "lost_process.py" in stacks  # where the main thread is
    assert stacks.count("hread 0x") > 3


def check_lost(workdir, moment, what, lost):
    does = [("close", "SIGABRT")] * 2  # on its way out; JAX ends a process so, sometimes
    does[lost] = moment, what
    codes, lines = ends(start(workdir, *does))
    here, other = (moment, what, lost, codes, lines), 1 - lost
    (line,) = lines[other]
    assert f"Peer: process {lost} of 2 (host " in line, here
    if what == "SIGKILL":
        assert (codes[lost], codes[other]) == (137, 30), here
        assert "ended with 137; this one cannot go on" in line, here
        assert lines[lost] == [], here
    else:
        assert codes[lost] == 31, here
        assert codes[other] in (30, 31), here  # it may see the silence first, or the code
        silent = "Peer: this process showed no sign of life for 5 s and was ended"
        assert lines[lost] == [silent], here


def test_a_process_lost_in_any_moment_is_named_and_resumed(tmp_path, trained):
    workdir = tmp_path / "run"
    for number, (moment, what) in enumerate(STARTS):
        if what == "hang":
            check_hang(workdir, moment)
        else:
            check_lost(workdir, moment, what, number % 2)
    # on a busy machine a process may be silent for longer than that
    codes, lines = ends(start(workdir, NEVER, NEVER, flags=("--lost_seconds=60",)))
    assert (codes, lines[1]) == ([0, 0], []), lines
    assert_same_losses(workdir, trained)

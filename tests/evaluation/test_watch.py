"""A run whose checkpoints are evaluated while it is trained."""

from types import SimpleNamespace

import pytest

from vlc_jax.errors import PreemptedError
from vlc_jax.evaluation import watch
from vlc_jax.run.checkpoint import CheckpointError
from vlc_jax.run.processes.preemption import StopSignal
from vlc_jax.run.workdir import Workdir
from vlc_jax.setup.init_from import Latest
from vlc_jax.types.setup import Setup


@pytest.fixture
def evaluated(monkeypatch):
    """Steps that were evaluated, by an evaluation that computes nothing."""
    steps = []
    evaluation = SimpleNamespace(
        read=lambda: None,
        is_complete=lambda step: step in steps,
        forget_after=lambda step: None,
        run=lambda variables, step: steps.append(step),
        publish=lambda step: None,
    )
    monkeypatch.setattr(watch, "Evaluation", lambda *args: evaluation)
    for name in ("_check", "claim"):
        monkeypatch.setattr(watch, name, lambda *args: None)
    return steps


def trained(monkeypatch, run, *states):
    """Makes each wait lead to the next state of the run: what it adds to its folder."""
    states = list(states)

    def advance(stop=None):
        for name in states.pop(0):
            (run / name).mkdir(parents=True)

    def load(setup, path, on_event):
        step = watch.newest_step(path)
        if (path / f"checkpoints/{step}/damaged").exists():
            raise CheckpointError("damaged")
        return Latest({}, step, {}, {})

    monkeypatch.setattr(watch, "wait", advance)
    monkeypatch.setattr(watch.init_from, "load_latest", load)
    advance()
    setup, workdir = Setup(*[None] * len(Setup._fields)), object.__new__(Workdir)
    watch.watch(setup, workdir, StopSignal(), run)
    assert not states


def test_each_new_checkpoint_is_evaluated_until_the_run_has_ended(monkeypatch, evaluated, tmp_path):
    steps = [f"checkpoints/{step}" for step in (4, 8, 12, 16)]
    trained(monkeypatch, tmp_path, [], steps[:1], [], steps[1:3], [steps[3], "DONE"])
    assert evaluated == [4, 12, 16]


def test_a_checkpoint_that_is_deleted_while_it_is_read_is_waited_for(
    monkeypatch, evaluated, tmp_path
):
    trained(monkeypatch, tmp_path, ["checkpoints/4/damaged"], ["checkpoints/8", "FAILED"])
    assert evaluated == [8]


def test_a_damaged_checkpoint_of_a_run_that_has_ended_is_an_error(monkeypatch, evaluated, tmp_path):
    with pytest.raises(CheckpointError):
        trained(monkeypatch, tmp_path, ["checkpoints/4/damaged", "DONE"])


def test_waiting_ends_with_a_signal():
    stop = StopSignal()
    stop.name = "SIGTERM"
    with pytest.raises(PreemptedError):
        watch.wait(stop)

"""Whole runs from the command line: they end the same whatever happens to them on the way."""

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import jax
import numpy as np
import psutil
import pytest

from tests.support import forks, helpers
from tests.support.marks import slow_but
from tests.support.runs import event_names, flip_a_byte, losses, saved_state, steps_logged, wait_for


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """The run all others are compared with."""
    workdir = tmp_path_factory.mktemp("unbroken") / "run"
    helpers.run(helpers.TINY, workdir, code=0)
    return workdir


def assert_same_end(workdir: Path, unbroken: Path) -> None:
    """Rule R of every fault: same parameters and moments bit for bit, each step logged once."""
    same = jax.tree.map(np.array_equal, *(saved_state(w, 12) for w in (workdir, unbroken)))
    assert all(jax.tree.leaves(same))
    assert [row["step"] for row in helpers.rows(workdir / "metrics.jsonl")] == list(range(1, 13))
    assert losses(workdir) == losses(unbroken)
    for name in ("scenes_retrieval", "scenes_attribute_swap"):
        for step in (6, 12):
            a, b = (
                json.loads((w / f"evals/{name}/{step}.json").read_text())
                for w in (workdir, unbroken)
            )
            assert a["metrics"] == b["metrics"]
    assert (workdir / "DONE").exists()
    assert not (workdir / "FAILED").exists()


def wait_until_idle(job: forks.Job) -> None:
    """Until it computes no more; a loader that waits is polled a few times per second."""
    process, last = psutil.Process(job.pid), -1.0
    while (used := sum(process.cpu_times()[:2])) > last + 0.1:
        last = used
        time.sleep(2)


def test_a_run_leaves_everything_a_user_looks_for(unbroken):
    for name in ("config.json", "env.json", "metrics.jsonl", "events.jsonl", "logs/host_000.log"):
        assert (unbroken / name).stat().st_size > 0
    for name in ("report.html", "report.md", "DONE", "evals/scenes_retrieval/12.scores.jsonl"):
        assert (unbroken / name).exists()
    assert list((unbroken / "evals/scenes_retrieval/images").glob("*.png"))
    assert list((unbroken / "tensorboard").iterdir())
    row = helpers.rows(unbroken / "metrics.jsonl")[-1]
    assert {"train/loss", "perf/mfu", "perf/data_wait_fraction", "perf/memory_gb"} <= row.keys()


def test_running_a_finished_run_again_changes_nothing(unbroken):
    before = saved_state(unbroken, 12)
    done = helpers.run(helpers.TINY, unbroken, code=0)
    assert "scenes_attribute_swap" in done.stdout
    assert "report.html" in done.stdout
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, before, saved_state(unbroken, 12))))


def test_eval_mode_makes_what_is_missing_in_a_workdir(unbroken):
    path = unbroken / "evals/scenes_retrieval/12.json"
    found = json.loads(path.read_text())
    path.unlink()
    done = helpers.python("-m", "vlc_jax.main", "--mode", "eval", "--workdir", unbroken, code=0)
    assert "scenes_retrieval" in done.stdout
    assert json.loads(path.read_text())["metrics"] == found["metrics"]
    assert "scenes_attribute_swap: kept from before" in done.stdout


def test_three_kills_at_random_steps_change_nothing(tmp_path, unbroken):
    workdir, rng = tmp_path / "run", np.random.default_rng(7)
    for goal in sorted(rng.integers(0, 12, size=3)):
        with helpers.start(helpers.TINY, workdir) as job:
            wait_for(lambda g=goal: steps_logged(workdir) >= g, job)
            job.kill()
    helpers.run(helpers.TINY, workdir, code=0)
    assert_same_end(workdir, unbroken)


@pytest.mark.parametrize("moment", slow_but(("step",), ("compile", "step", "evaluation")))
def test_sigterm_saves_exits_75_and_the_same_command_goes_on(tmp_path, unbroken, moment):
    workdir = tmp_path / "run"
    reached = {
        "compile": lambda: "start" in event_names(workdir),
        "step": lambda: steps_logged(workdir) >= 2,
        "evaluation": lambda: "evaluation" in event_names(workdir),
    }[moment]
    with helpers.start(helpers.TINY, workdir) as job:
        wait_for(reached, job)
        job.send_signal(signal.SIGTERM)
        _, errors = job.communicate(timeout=60)
    assert job.returncode == 75, errors
    assert "preempted" in event_names(workdir)
    steps = [int(path.name) for path in (workdir / "checkpoints").glob("[0-9]*")]
    saved = f"step {max(steps)} is saved" if steps else "no step was taken yet"
    assert f"Preempted: SIGTERM, {saved}: the same command continues" in errors
    helpers.run(helpers.TINY, workdir, code=0)
    assert_same_end(workdir, unbroken)


def stop_at(pipe: Path, config: str, workdir: Path, *flags: str) -> int:
    """Starts a run and sends SIGTERM when it waits for a named pipe nobody writes to; returns the
    end of the pipe that is written to."""
    words = helpers.words(config, workdir, *flags)
    words[1] = "tests.support.hanging_images"  # a pipe is no picture, otherwise
    with forks.Job(words, helpers.ROOT, helpers.environment()) as job:
        writer = None
        while writer is None:
            assert job.poll() is None, job.stderr.read()
            with contextlib.suppress(OSError):  # until somebody reads
                writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            time.sleep(0.1)
        wait_until_idle(job)
        job.send_signal(signal.SIGTERM)
        _, errors = job.communicate(timeout=30)
    assert job.returncode == 75, errors
    return writer


@pytest.mark.slow
def test_sigterm_while_waiting_for_data_saves_and_resumes(tmp_path):
    """A picture that never arrives is a named pipe; first the preview reads it, then workers."""
    names = helpers.write_photos(tmp_path, count=12)
    table, workdir = helpers.write_jsonl(tmp_path, names), tmp_path / "run"
    config = f"configs/records.py:path={table},batch=4,steps=9,holdout=0"
    flags = ("--config.input.preview=4", "--config.evals={'retrieval': {'split': 'all'}}")
    workers = "--config.input.loader.workers=2"
    stuck = tmp_path / names[-1]
    photo = stuck.read_bytes()
    stuck.unlink()
    os.mkfifo(stuck)
    os.close(stop_at(stuck, config, workdir, "--config.input.preview=12"))
    os.close(stop_at(stuck, config, workdir, *flags, workers))
    stuck.unlink()
    stuck.write_bytes(photo)
    helpers.run(config, workdir, *flags, code=0)
    assert helpers.rows(workdir / "metrics.jsonl")[-1]["step"] == 9


def test_a_flipped_byte_falls_back_to_the_checkpoint_before(tmp_path, unbroken):
    workdir = tmp_path / "run"
    with helpers.start(helpers.TINY, workdir) as job:
        wait_for(lambda: (workdir / "checkpoints" / "8").exists(), job)
        job.kill()
    newest = max((workdir / "checkpoints").glob("[0-9]*"), key=lambda path: int(path.name))
    file = max((p for p in newest.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    flip_a_byte(file)
    done = helpers.run(helpers.TINY, workdir, code=0)
    assert "corrupt_checkpoint" in event_names(workdir)
    assert f" of 12 from {workdir}" in done.stderr
    assert "does not match its sha256" in done.stderr + (workdir / "logs/host_000.log").read_text()
    assert_same_end(workdir, unbroken)


def test_fewer_steps_than_were_taken_are_refused(unbroken):
    done = helpers.run(helpers.TINY, unbroken, "--config.steps=8", "--allow_config_change", code=2)
    assert "is at step 12, beyond the 8" in done.stderr
    assert sorted(p.name for p in (unbroken / "checkpoints").iterdir()) == ["12", "8"]


@pytest.mark.slow
def test_what_comes_first_is_resumed_and_then_started_from(tmp_path):
    both, config = tmp_path / "both", f"{helpers.TINY}:pretrain"
    with helpers.start(config, both) as job:
        wait_for(lambda: steps_logged(both / "pretrain") >= 2, job)
        job.send_signal(signal.SIGTERM)
        _, errors = job.communicate(timeout=60)
    assert job.returncode == 75, errors
    helpers.run(config, both, code=0)
    assert "resume" in event_names(both / "pretrain")
    assert (both / "pretrain" / "DONE").exists()

    helpers.run(helpers.TINY, tmp_path / "given", f"--config.init_from={both / 'pretrain'}", code=0)
    assert_same_end(tmp_path / "given", both)
    assert not (tmp_path / "given" / "pretrain").exists()

    again = helpers.run(config, both, "--config.pretrain.seed=2", code=2)
    assert "pretrain holds a run with another config" in again.stderr


def test_a_wrong_config_is_found_before_the_run_that_comes_first(tmp_path):
    wrong = ("--config.input.negatives.count=1", "--config.input.negatives.fallback=slip")
    for flags in (wrong, ("--config.optimizer.warmup_steps=99",)):
        done = helpers.run(f"{helpers.TINY}:pretrain", tmp_path / "run", *flags, code=2)
        assert "slip" in done.stderr or "warmup" in done.stderr
        assert not (tmp_path / "run" / "pretrain").exists()

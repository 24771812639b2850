"""What an evaluation leaves alone in a workdir, and what it leaves out when time is over."""

import contextlib
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from vlc_jax.configs import default
from vlc_jax.errors import PreemptedError, UsageError
from vlc_jax.evaluation import benchmarks, mode
from vlc_jax.evaluation.benchmarks import Evaluation
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.run.processes.preemption import StopSignal
from vlc_jax.run.workdir import Workdir
from vlc_jax.setup import data
from vlc_jax.train import loop
from vlc_jax.types import State


def test_files_of_no_step_are_left_when_later_steps_are_forgotten(tmp_path):
    evaluation = object.__new__(Evaluation)  # of which only the files are looked at
    evaluation.workdir = SimpleNamespace(path=tmp_path, owns_files=True)
    folder = tmp_path / "evals/scenes_attribute_swap"
    folder.mkdir(parents=True)
    for name in ("3.json", "5.json", "5.scores.jsonl", "².json", "notes.json"):
        (folder / name).write_text("{}")
    evaluation.forget_after(4)
    assert {path.name for path in folder.iterdir()} == {"3.json", "².json", "notes.json"}


@pytest.mark.parametrize(
    ("seconds", "finished", "made"),
    [(None, (), "abc"), (15.0, (), "ab"), (5.0, (), "a"), (5.0, ("b",), "ab"), (1e9, (), "abc")],
)
def test_no_benchmark_is_begun_when_time_is_over_and_those_left_are_named(
    monkeypatch, seconds, finished, made
):
    """Each takes ten seconds, but for one that was finished before."""
    clock, done, events = [0.0], [], []

    def one(self, name, variables, scorer, step):
        clock[0] += 10.0 * (name not in finished)
        done.append(name)
        return {"benchmark": name}

    evaluation = object.__new__(Evaluation)
    evaluation._options = SimpleNamespace(benchmarks=dict.fromkeys("abc"))
    evaluation._encoder = SimpleNamespace(
        scorer=lambda variables: None, forget=lambda: events.append("forgotten")
    )
    evaluation.workdir = SimpleNamespace(event=lambda name, **fields: events.append(fields))
    monkeypatch.setattr(Evaluation, "_one", one)
    monkeypatch.setattr(Evaluation, "_write_maps", lambda *args: None)
    monkeypatch.setattr(
        Evaluation, "_finished", lambda self, name, step: {} if name in finished else None
    )
    monkeypatch.setattr(benchmarks.time, "monotonic", lambda: clock[0])
    rows = evaluation.run({}, 4, seconds)
    assert done == list(made) == [row["benchmark"] for row in rows]
    left = [name for name in "abc" if name not in made]
    expected = [{"step": 4, "seconds": seconds, "benchmarks": left}] if left else []
    assert events == [*expected, "forgotten"]


def test_a_benchmark_notes_its_images_that_were_trained_on(tmp_path, caplog):
    config, names = default.get_config(), ("1.png", "2.png", "3.png")
    for name in names:
        (tmp_path / name).write_text(name)
    table = "".join(f'{{"image": "{name}", "caption": "x"}}\n' for name in names[:2])
    (tmp_path / "t.jsonl").write_text(table)
    for path in (str(tmp_path), "gs://bucket/t.jsonl", str(tmp_path / "t.jsonl")):
        assert data.training_images(config) == set()  # scenes; a folder; an address, not asked
        with config.unlocked():
            config.input.source, config.input.source_options = "records", {"path": path}
    evaluation = object.__new__(Evaluation)
    evaluation._options = SimpleNamespace(training_images=partial(data.training_images, config))
    cases = tuple(Case(name, (tmp_path / name,), ("x",)) for name in names)
    found = evaluation._compared("birds", Benchmark("birds", cases, "1", notes=("a note",)))
    note = "at least 2 of 3 images are training images (equal files)"
    assert found.notes == ("a note", note)
    assert f"benchmark birds: {note}" in caplog.text


def test_a_stopped_evaluation_saves_its_features_and_does_not_forget_them(monkeypatch):
    called = []

    def stop(*args):
        raise PreemptedError("SIGTERM")

    evaluation = object.__new__(Evaluation)
    evaluation._encoder = SimpleNamespace(
        save=lambda: called.append("save"), forget=lambda: called.append("forget")
    )
    monkeypatch.setattr(Evaluation, "_run", stop)
    with pytest.raises(PreemptedError):
        evaluation.run({}, 4)
    assert called == ["save"]


@pytest.mark.parametrize(
    ("training", "seconds", "lines"),
    [
        (None, 1.2, ["set 2 of 2, mine: accuracy 71.9 %, 0:00:01"]),
        ("training", 9.0, []),
        ("training", 61.0, ["set 2 of 2, mine: accuracy 71.9 %, 0:01:01"]),
    ],
)
def test_a_finished_set_is_a_line_in_training_if_it_took_long(capsys, training, seconds, lines):
    evaluation = object.__new__(Evaluation)
    evaluation.setup = SimpleNamespace(training=training)
    evaluation.workdir = SimpleNamespace(is_writer=True)
    evaluation._options = SimpleNamespace(benchmarks={"first": None, "mine": None})
    evaluation._folders = {"mine": Path("evals/mine")}
    headline = {"value": 0.7191, "unit": "fraction"}
    evaluation._say_finished("mine", "accuracy", headline, seconds)
    assert capsys.readouterr().err.splitlines() == lines


def test_a_signal_ends_the_reading_of_a_checkpoint(tmp_path, monkeypatch):
    def endless(setup, path, on_event):
        stop.name = "SIGTERM"
        threading.Event().wait()

    stop = StopSignal()
    monkeypatch.setattr(mode.init_from, "load_latest", endless)
    run = Workdir(tmp_path)
    interpolation = SimpleNamespace(interpolation=None)
    with pytest.raises(PreemptedError, match="SIGTERM"):
        mode.evaluate_workdir(
            SimpleNamespace(config={}, evaluation=interpolation), run, stop, False
        )
    run.close()


@pytest.mark.parametrize(("step", "seconds"), [(5, 60.0), (10, None)])
def test_the_evaluation_of_the_last_step_has_all_the_time(step, seconds):
    asked = []
    evaluation = SimpleNamespace(
        is_complete=lambda step: False, run=lambda variables, step, seconds: asked.append(seconds)
    )
    setup = SimpleNamespace(
        training=SimpleNamespace(steps=10),
        evaluation=SimpleNamespace(seconds=60.0),
        parameters=SimpleNamespace(has_frozen=False),
    )
    log = SimpleNamespace(
        flush=lambda: None,
        evaluated=lambda step, rows: None,
        clock=SimpleNamespace(paused=contextlib.nullcontext),
    )
    state = State(step, {}, {}, {})
    loop.Run(setup, None, None, log, None, evaluation).evaluate(step, state)
    assert asked == [seconds]


def test_a_published_set_whose_images_are_missing_says_where_they_come_from():
    with (
        pytest.raises(DataError, match=r"^benchmark mine: gone; put .*github.com/mertyg") as caught,
        benchmarks.named_errors("mine", "vg_relation"),
    ):
        raise DataError("gone")
    with pytest.raises(DataError) as again, benchmarks.named_errors("mine", "vg_relation"):
        raise DataError(str(caught.value))
    assert str(again.value).count("github.com/mertyg") == 1
    with (
        pytest.raises(DataError, match=r"^benchmark mine: gone$"),
        benchmarks.named_errors("mine", "choice"),
    ):
        raise DataError("gone")


def test_files_of_stored_vectors_are_opened_and_a_missing_one_is_named(tmp_path):
    path = tmp_path / "dino.npy"
    np.save(path, np.eye(2, dtype=np.float32))
    path.with_suffix(".jsonl").write_text('"a_0.png"\n"a_1.png"\n')
    opened = benchmarks.open_vectors("pairs", {"tie": "half", "second_features": str(path)})
    assert opened["second_features"](["a_1.png"]).tolist() == [[0.0, 1.0]]
    assert opened["tie"] == "half"
    assert benchmarks.open_vectors("pairs", {"second_features": ""}) == {}
    assert benchmarks.open_vectors("choice", {"tie": "half"}) == {"tie": "half"}
    with pytest.raises(UsageError, match=r"second_features: cannot read .*no\.npy"):
        benchmarks.open_vectors("pairs", {"second_features": str(tmp_path / "no.npy")})

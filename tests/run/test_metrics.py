"""metrics.jsonl holds each step once, speed excludes pauses, the progress line says what it can."""

import io
import json
import logging
import math
import re
import sys

import pytest

from vlc_jax.errors import UsageError
from vlc_jax.run import metrics


def rows(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def test_rows_after_the_restored_step_are_cut(tmp_path):
    writer = metrics.MetricsWriter(tmp_path, 0)
    for step in (1, 2, 3):
        writer.write(step, {"train/loss": float(step)})
    writer.close()
    writer = metrics.MetricsWriter(tmp_path, 1)
    writer.write(2, {"train/loss": 20.0})
    writer.close()
    assert [(row["step"], row["train/loss"]) for row in rows(tmp_path)] == [(1, 1.0), (2, 20.0)]


def test_lines_that_are_no_rows_are_dropped(tmp_path):
    lines = (
        b'{"step": 1}',
        b"3",
        b"[1]",
        b'{"step": "x"}',
        b"\xff\xfe",
        b"[" * 100_000,
        b"{}",
        b'{"s',
    )
    (tmp_path / "metrics.jsonl").write_bytes(b"\n".join(lines))
    metrics.MetricsWriter(tmp_path, 5).close()
    assert rows(tmp_path) == [{"step": 1}]


def test_a_failing_tensorboard_does_not_end_the_run(tmp_path):
    (tmp_path / "tensorboard").write_text("a file where a folder should be")
    writer = metrics.MetricsWriter(tmp_path, 0)
    writer.write(1, {"train/loss": 1.0})
    writer.close()
    assert len(rows(tmp_path)) == 1


def test_trackio_shows_the_curves_and_resumes(tmp_path, monkeypatch):
    pytest.importorskip("trackio", reason="trackio is not installed")
    storage = pytest.importorskip("trackio.sqlite_storage").SQLiteStorage
    monkeypatch.setenv("TRACKIO_PROJECT", "project")
    workdir = tmp_path / "clip"
    workdir.mkdir()
    for step in (1, 2):
        writer = metrics.MetricsWriter(workdir, step - 1)
        writer.write(step, {"train/loss": 1.0 / step})
        writer.close()
    rows = storage.get_logs("project", "clip")
    assert [(row["step"], row["train/loss"]) for row in rows] == [(1, 1.0), (2, 0.5)]


WANDB = """
calls = []


class Run:
    def log(self, data, step=None, commit=None):
        calls.append(("log", step, data))

    def finish(self, exit_code=None):
        calls.append(("finish",))


def init(entity=None, project=None, dir=None, id=None, name=None, config=None,
         allow_val_change=None, mode=None, resume=None):
    calls.append(("init", project, name, id, config, allow_val_change, mode, resume))
    return Run()
"""


def test_wandb_gets_the_curves_and_a_resume_its_run(tmp_path, monkeypatch):
    """The calls are those of wandb 0.28."""
    (tmp_path / "wandb.py").write_text(WANDB)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.setenv("WANDB_PROJECT", "project")
    workdirs = [tmp_path / "a" / "clip", tmp_path / "b" / "clip"]
    for workdir, step in zip([workdirs[0], *workdirs], (0, 1, 0), strict=True):
        workdir.mkdir(parents=True, exist_ok=True)
        (workdir / "config.json").write_text('{"steps": 2}')
        writer = metrics.MetricsWriter(workdir, step)
        writer.write(step + 1, {"train/loss": 1.0})
        writer.close()
    calls = sys.modules.pop("wandb").calls
    first, resumed, other = (call for call in calls if call[0] == "init")
    # mode None: $WANDB_MODE decides
    assert first[:3] + first[4:] == (
        "init", "project", "clip", {"steps": 2}, True, None, "allow"
    )  # fmt: skip
    assert first == resumed
    assert (other[3] != first[3], first[3].isalnum()) == (True, True)
    assert calls[1:3] == [("log", 1, {"train/loss": 1.0}), ("finish",)]
    assert calls[4] == ("log", 2, {"train/loss": 1.0})


@pytest.mark.parametrize("variable", metrics.TRACKERS)
def test_a_missing_tracker_is_named_before_the_first_step(tmp_path, monkeypatch, variable):
    monkeypatch.setenv(variable, "project")
    monkeypatch.setattr(metrics.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=f"{variable} is set: pip install"):
        metrics.MetricsWriter(tmp_path, 0)


def test_a_failing_board_leaves_the_others(tmp_path, monkeypatch, caplog):
    class Failing(metrics.TensorBoard):
        def write(self, step, values):
            raise RuntimeError("no connection")

    monkeypatch.setattr(metrics, "TensorBoard", Failing)
    writer = metrics.MetricsWriter(tmp_path, 0)
    for step in (1, 2):
        writer.write(step, {"train/loss": 1.0})
    writer.close()
    assert len(rows(tmp_path)) == 2
    assert caplog.text.count("stop here: no connection") == 1


def test_speed_counts_waits_and_leaves_pauses_out(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(metrics.time, "perf_counter", lambda: now[0])

    def pass_seconds(seconds):
        now[0] += seconds

    clock = metrics.StepClock(batch_size=10, devices=2, peak_flops=8.0)
    with clock.paused("evaluation"):
        pass_seconds(8.0)
    with clock.waiting():
        pass_seconds(1.0)
    pass_seconds(3.0)
    clock.tick(40.0)
    values = clock.read()
    assert values["time/elapsed_s"] == 4.0
    assert values["perf/data_wait_fraction"] == 0.25
    assert values["perf/examples_per_s"] == 10 / 4
    assert values["perf/examples_per_s_per_device"] == 10 / 4 / 2
    assert values["perf/mfu"] == 10 / 4 / 2 * 4 / 8
    assert clock.eta(10) == 10 * clock.elapsed
    assert clock.seconds() == {"steps": 3.0, "input": 1.0, "evaluation": 8.0}


def test_steps_of_shorter_texts_count_with_their_own_flops():
    clock = metrics.StepClock(batch_size=10, devices=1, peak_flops=8.0)
    clock.tick(10.0)
    clock.tick(40.0)
    values = clock.read()
    expected = values["perf/examples_per_s"] * (1 + 4) / 2 / 8
    assert values["perf/mfu"] == pytest.approx(expected)


def test_reads_are_counted_since_the_last_row():
    clock = metrics.StepClock(batch_size=1, devices=1, peak_flops=1.0)
    names = ("perf/read_mb", "perf/staged_mb", "perf/stage_hit_fraction")
    assert not clock.read().keys() & {*names}
    for _ in range(2):
        clock.count_reads({"bytes_read": 10**6, "bytes_staged": 10**6, "stage_misses": 1})
        clock.count_reads({"bytes_read": 10**6, "stage_hits": 3})
        values = clock.read()
        assert [values[name] for name in names] == [2, 1, 0.75]
    values = clock.read()
    assert (values["perf/read_mb"], values["perf/staged_mb"]) == (0, 0)
    assert "perf/stage_hit_fraction" not in values
    clock.count_reads({}, {"web": 0.25})
    assert clock.read()["data/epochs/web"] == 0.25


def test_the_progress_line_shows_what_is_known():
    line = metrics.progress_text(5, 20, {"train/loss": 1.5, "perf/mfu": 0.25}, 61.0)
    assert line == "step 5/20 25% ETA 0:01:01 loss 1.500 mfu 0.25"
    assert "ETA ?" in metrics.progress_text(0, 20, {}, math.nan)


FIELDS = {
    "train/loss": 2.5,
    "train/loss_over_log_batch": 0.5,
    "perf/examples_per_s": 12345.0,
    "perf/mfu": 0.25,
    "train/learning_rate": 1e-3,
    "perf/memory_gb": 70.0,
}


def test_a_narrow_line_leaves_out_whole_fields_from_its_end():
    whole = metrics.progress_text(250, 1000, FIELDS, 3600.0)
    assert whole.endswith("lr 1.0e-03 mem 70.0G")
    assert metrics.progress_text(250, 1000, FIELDS, 3600.0, len(whole)) == whole
    shorter = metrics.progress_text(250, 1000, FIELDS, 3600.0, len(whole) - 1)
    assert whole == shorter + " mem 70.0G"
    narrow = metrics.progress_text(250, 1000, FIELDS, 3600.0, 40)
    assert narrow == "step 250/1000 25% ETA 1:00:00 loss 2.500"


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_the_bar_fits_its_terminal_and_the_log_has_all_fields(monkeypatch, caplog, columns):
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    caplog.set_level(logging.INFO)
    line = metrics.ProgressLine(1000)
    line.show(250, FIELDS, 3600.0)
    line._bar.refresh()
    line.close()
    written = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue()).splitlines()
    shown = [row.rstrip() for row in written if "step" in row]
    assert all(len(row) <= columns and "\N{HORIZONTAL ELLIPSIS}" not in row for row in shown)
    assert any("loss 2.500" in row and row.endswith("G") == (columns == 200) for row in shown)
    assert "mem 70.0G" in caplog.text

"""metrics.jsonl holds each step once, speed excludes pauses, the progress line says what it can."""

import json
import math
import time

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


def test_a_half_written_last_row_is_dropped(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2, "train/lo')
    metrics.MetricsWriter(tmp_path, 5).close()
    assert rows(tmp_path) == [{"step": 1}]


def test_lines_that_are_no_rows_are_dropped(tmp_path):
    lines = (b'{"step": 1}', b"3", b"[1]", b'{"step": "x"}', b"\xff\xfe", b"[" * 100_000, b"{}")
    (tmp_path / "metrics.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    metrics.MetricsWriter(tmp_path, 5).close()
    assert rows(tmp_path) == [{"step": 1}]


def test_a_failing_tensorboard_does_not_end_the_run(tmp_path):
    (tmp_path / "tensorboard").write_text("a file where a folder should be")
    writer = metrics.MetricsWriter(tmp_path, 0)
    writer.write(1, {"train/loss": 1.0})
    writer.close()
    assert len(rows(tmp_path)) == 1


def test_speed_counts_waits_and_leaves_pauses_out():
    clock = metrics.StepClock(batch_size=10, devices=2, train_flops=4.0, peak_flops=8.0)
    with clock.paused():
        time.sleep(0.2)
    with clock.waiting():
        time.sleep(0.05)
    clock.tick()
    values = clock.read()
    assert values["time/elapsed_s"] < 0.15
    assert 0.2 < values["perf/data_wait_fraction"] <= 1
    rate = values["perf/examples_per_s"]
    assert values["perf/examples_per_s_per_device"] == rate / 2
    assert values["perf/mfu"] == rate / 2 * 4 / 8
    assert clock.eta(10) == 10 * clock.elapsed


def test_the_progress_line_shows_what_is_known():
    line = metrics.progress_text(5, 20, {"train/loss": 1.5, "perf/mfu": 0.25}, 61.0)
    assert line == "step 5/20 25% ETA 0:01:01 loss 1.500 mfu 0.25"
    assert "ETA ?" in metrics.progress_text(0, 20, {}, math.nan)

"""A workdir as a run would leave it: the quickstart on the scenes, made up from formulas."""

import io
from pathlib import Path

import numpy as np
import pytest
import rich.console
from PIL import Image, ImageDraw

from tests.support import helpers
from tests.support.sets.files import write_json
from vlc_jax import evaluators
from vlc_jax.evaluators import PROTOCOLS, stats
from vlc_jax.input_pipeline.benchmarks import PROTOCOL_OF
from vlc_jax.report import plot

FINAL = {  # metric or benchmark -> fraction right at the end; others .72
    "image_to_text_r1": 0.46,
    "scenes_attribute_swap": 0.62,
    "scenes_relation_swap": 0.51,
    "scenes_negation": 0.41,
    "pair_accuracy": 0.26,
    "augmented_accuracy": 0.22,
    "original_accuracy": 0.88,
    "brittleness": 0.64,
}
CHANCE = {  # metric or protocol -> chance; others 1/2
    "retrieval": 1 / 1000,
    "zeroshot": 1 / 10,
    "pair_accuracy": 1 / 4,
    "augmented_accuracy": 1 / 3,
    "brittleness": 1 / 3,
}


def config() -> dict:
    return {
        "seed": 0,
        "steps": 512,
        "batch_size": 256,
        "losses": {"infonce": {"weight": 1.0}},
        "optimizer": {"learning_rate": 1e-3, "warmup_steps": 100, "schedule": "cosine"},
        "model": {"name": "clip", "variant": "mini"},
        "evals": {name: {"count": 2000} for name in PROTOCOL_OF if name.startswith("scenes")},
    }


def env() -> dict:
    return {
        "command": "python -m vlc_jax.main --config configs/scenes/clip.py:quickstart "
        "--workdir runs/demo/clip",
        "commit": "4f0c1d2a9b7e5533d1c0ffee9c2b7a6d5e4f3a21",
        "hardware": {
            "platform": "cpu",
            "devices": ["cpu"],
            "device_count": 1,
            "process_count": 1,
            "cpu": "x86_64, 2 cores",
        },
        "versions": {"python": "3.11.2", "jax": "0.10.2", "flax": "0.12.8", "numpy": "2.4.6"},
        "parameters": {"image": 380_544, "text": 252_288, "logit_scale": 1, "total": 632_833},
        "input": {"train": "scenes-mini-v1-train-64000"},
    }


def metrics(steps: int) -> list[dict]:
    rng = np.random.default_rng(0)
    rows = []
    for step in range(10, steps + 1, 10):
        loss = 0.35 + 5.2 * np.exp(-step / 110) + 0.06 * rng.standard_normal()
        warm = min(1.0, step / 100)
        rows.append(
            {
                "step": step,
                "train/loss": loss,
                "train/loss_over_log_batch": loss / np.log(256),
                "train/logit_scale": 14.3 + 9 * (1 - np.exp(-step / 300)),
                "train/learning_rate": 1e-3 * warm * (1 + np.cos(np.pi * step / 512)) / 2,
                "train/grad_norm": 2.5 * np.exp(-step / 200) + 0.3 * rng.random(),
                "perf/examples_per_s": 1050 + 30 * rng.standard_normal(),
                "perf/mfu": 0.31 + 0.01 * rng.standard_normal(),
                "perf/data_wait_fraction": 0.004 + 0.003 * rng.random(),
                "perf/memory_gb": 1.31,
                "time/elapsed_s": step * 0.244,
            }
        )
    return rows


def draw(index: int, shift: int = 0) -> Image.Image:
    """Two coloured shapes on a light ground, 40 pixels square."""
    image = Image.new("RGB", (40, 40), (214, 221, 205))
    pen = ImageDraw.Draw(image)
    colours = ["#d22", "#28c", "#2a4", "#e91", "#83b"]
    pen.ellipse((4, 13 + shift, 18, 27 + shift), fill=colours[index % 5])
    pen.rectangle((23, 12 - shift, 36, 25 - shift), fill=colours[(index + 2) % 5])
    return image


def result(name: str, step: int) -> dict:
    protocol = PROTOCOL_OF[name]
    count = 1000 if protocol == "retrieval" else 2000
    found = {}
    for metric in PROTOCOLS[protocol].summary:
        chance = CHANCE.get(metric, CHANCE.get(protocol, 1 / 2))
        final = FINAL.get(metric, FINAL.get(name, 0.72))
        value = chance + (final - chance) * (1 - np.exp(-step / 150)) / (1 - np.exp(-512 / 150))
        right = np.arange(count) < round(value * count)
        found[metric] = stats.proportion(right, chance, np.arange(count) < 3)._asdict()
    if protocol in ("choice", "triplet", "pairs"):
        of = list(found) if protocol == "triplet" else list(found)[:1]
        found |= {f"{name}/{group}": found[name] for name in of for group in ("colour", "size")}
    if protocol == "triplet":
        scores = np.linspace(0.1, 0.6, count)
        found["mean_score_correct"] = stats.mean(scores, unit="score")._asdict()
    if protocol == "retrieval":
        ranks = np.arange(count) % 17 + 1
        found["image_to_text_mean_rank"] = stats.bootstrapped(
            ranks, "mean", 500.5, unit="rank"
        )._asdict()
    return {
        "benchmark": name,
        "protocol": protocol,
        "display": evaluators.display(protocol),
        "step": step,
        "version": "1",
        "options": {},
        "summary": list(PROTOCOLS[protocol].summary),
        "metrics": found,
        "seconds": 0.4,
    }


def metric(value=0.6, low=0.55, high=0.65, chance=0.5, **more) -> dict:
    """A metric of a result that is made up."""
    fields = {"value": value, "low": low, "high": high, "chance": chance}
    return fields | {"count": 400, "ties": 0.01} | more


def made_up(name="b", protocol="choice", step=5, metrics=None, **more) -> dict:
    """A result of these metrics."""
    return {
        "benchmark": name, "protocol": protocol, "step": step, "version": "1", "options": {},
        "metrics": {"accuracy": metric()} if metrics is None else metrics,
        "display": evaluators.display(protocol),
    } | more  # fmt: skip


def printed(part, width: int) -> str:
    """A table of rich on a terminal of this width."""
    console = rich.console.Console(file=io.StringIO(), width=width)
    console.print(part)
    return console.file.getvalue()


def write_examples(folder: Path, protocol: str, step: int) -> None:
    rng, rows = np.random.default_rng(1), []
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for n in range(6):
        case = f"val/{n}"
        first, second = "a red circle left of a green square", "a green square left of a red circle"
        scores = np.round(0.6 + 0.2 * rng.random(2), 4)
        correct = bool(scores[0] > scores[1])
        row = {"id": case, "group": "colour", "captions": [first, second], "correct": correct}
        if protocol == "pairs":
            matrix = np.round(0.6 + 0.2 * rng.random((2, 2)), 4)
            is_pair = matrix[0, 0] > matrix[0, 1] and matrix[1, 1] > matrix[1, 0]
            rows.append(row | {"scores": matrix.tolist(), "correct": bool(is_pair)})
        elif protocol == "triplet":
            triplet = [*scores.tolist(), [0.9, 0.5][n % 2]]
            captions = [first, second, "a green square right of a red circle"]
            row |= {"captions": captions, "positives": [2], "scores": triplet}
            rows.append(row | {"correct": bool(min(triplet[0], triplet[2]) > triplet[1])})
        else:
            said = {"question": "Left <or> right?", "answer": "The | left."}
            rows.append(row | {"scores": scores.tolist()} | said)
        for k in range(2 if protocol == "pairs" else 1):
            draw(n, shift=6 * k).save(folder / "images" / f"{case.replace('/', '_')}_{k}.png")
    helpers.write_rows(folder / f"{step}.scores.jsonl", rows)


def events() -> list[dict]:
    return [
        {"time": "2026-11-20T10:00:01+00:00", "event": "start", "step": 0},
        {"time": "2026-11-20T10:00:40+00:00", "event": "bad_record", "id": "a|b<script>",
         "reason": "cannot identify image file"},
        {"time": "2026-11-20T10:01:02+00:00", "event": "save", "step": 250},
        {"time": "2026-11-20T10:01:30+00:00", "event": "preempted", "signal": "SIGTERM"},
        {"time": "2026-11-20T10:02:00+00:00", "event": "resume", "step": 250},
        {"time": "2026-11-20T10:03:10+00:00", "event": "evaluation", "step": 512},
    ]  # fmt: skip


def write_workdir(path: Path, outcome: str = "done", is_small: bool = False) -> Path:
    """`outcome`: done, failed, or running (half-way, a metrics row just being written).

    A small one has a loss but no other curve and no evaluations: quick to report on.
    """
    steps = 512 if outcome == "done" else 270
    write_json(path / "config.json", config())
    write_json(path / "env.json", env())
    rows = metrics(steps)
    if is_small:
        kept = ("step", "train/loss", "train/loss_over_log_batch")
        rows = [{name: row[name] for name in kept} for row in rows]
    helpers.write_rows(path / "metrics.jsonl", rows)
    helpers.write_rows(path / "events.jsonl", events()[: 6 if outcome == "done" else 5])
    if outcome == "running":
        with (path / "metrics.jsonl").open("a") as file:
            file.write('{"step": 280, "train/lo')
    if outcome == "failed":
        write_json(path / "FAILED", {"exit_code": 10, "reason": "step 271 is not finite <nan>"})
    if outcome == "done":
        write_json(path / "DONE", {"step": 512})
    names = [name for name in PROTOCOL_OF if name.startswith("scenes")] if not is_small else []
    for name in names:
        for step in (250, 500, 512) if outcome == "done" else (250,):
            write_json(path / "evals" / name / f"{step}.json", result(name, step))
        if name in ("scenes_attribute_swap", "scenes_swap", "scenes_whatsup"):
            write_examples(path / "evals" / name, PROTOCOL_OF[name], step)
    return path


@pytest.fixture
def blank_figures(monkeypatch):
    """Charts are not drawn, which takes half a second each: for tests of a page's text."""

    def draw(name, title, description, size, paint, margins=None):
        return plot.Picture(name, title, description, '<svg aria-label="blank"></svg>')

    monkeypatch.setattr(plot, "draw", draw)


@pytest.fixture
def make_workdir(tmp_path):
    """outcome -> the path of such a workdir, a small one."""
    return lambda outcome="done": write_workdir(tmp_path / "demo", outcome, is_small=True)

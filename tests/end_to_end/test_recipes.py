"""The controls on a miniature of COCO, as a user runs them: one from prepare to export, the others
until their step is traced.

The methods are in test_methods.py, where one of SigLIP is run whole, too.
"""

import json
import signal
import time

import numpy as np
import pytest

from tests.support import helpers, recipes

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def coco(tmp_path_factory):
    return recipes.write_coco(tmp_path_factory.mktemp("start") / "coco")


RECIPES = {  # recipe -> its weights, dataset, annotations, options of prepare
    "clip_ft": (recipes.write_clip, "negclip", "train_neg_clip.tsv", ()),
    "clip_coco": (recipes.write_clip, "coco", "captions_train2014.json", ("--split", "train")),
    "siglip_ft": (recipes.write_siglip, "coco", "dataset_coco.json", ("--split", "train+restval")),
}


def train_with_a_stop(config, workdir, flags):
    """SIGTERM after two steps, then the same command to the end."""
    job = helpers.start(config, workdir, *flags)
    metrics = workdir / "metrics.jsonl"
    deadline = time.monotonic() + 240
    while not (metrics.exists() and len(metrics.read_text().splitlines()) >= 2):
        assert job.poll() is None, job.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    job.send_signal(signal.SIGTERM)
    _, stderr = job.communicate(timeout=120)
    assert job.returncode == 75, stderr
    done = helpers.run(config, workdir, *flags)
    assert done.returncode == 0, done.stderr


def command(coco, folder, recipe):
    """Its config and flags, and the fields of its small towers; data and weights are written."""
    write, dataset, annotations, options = RECIPES[recipe]
    recipes.prepare(coco, folder / "train", dataset, annotations, *options)
    recipes.prepare(coco, folder / "test", "coco", "dataset_coco.json", "--split", "test")
    arguments, small = write(folder / "weights")
    data = f"path={folder / 'train'},validation={folder / 'test'},batch=8"
    flags = (
        *("--config.optimizer.warmup_steps=2", "--config.log_every=1"),
        *("--config.eval.batch_size=8", "--config.checkpoint.every=1000"),
        *("--config.optimizer.learning_rate=1e-3", "--config.input.max_bad_share=0.1"),
        "--config.epochs=5",
    )
    data += ",data=coco" if recipe == "clip_ft" else ""
    return f"{recipes.wrapper(folder, recipe, small)}:{arguments},{data}", flags, small


@pytest.mark.parametrize("recipe", ["clip_coco", "siglip_ft"])
def test_a_recipe_runs_from_published_files_up_to_its_step(coco, tmp_path, recipe):
    config, flags, _ = command(coco, tmp_path, recipe)
    words = ("--config", config, "--workdir", tmp_path / "run", *flags)
    done = helpers.python("-m", "tests.support.until_compiled", *words)
    assert done.returncode == 0, done.stderr
    (start,) = (
        row for row in helpers.rows(tmp_path / "run/events.jsonl") if row["event"] == "start"
    )
    count = recipes.PARTS["train"] + recipes.PARTS["restval"] * (recipe == "siglip_ft")
    assert start["steps"] == 5 * count // 8


def test_a_recipe_runs_from_published_files_to_an_exported_folder(coco, tmp_path):
    config, flags, small = command(coco, tmp_path, "clip_ft")
    workdir = tmp_path / "run"
    train_with_a_stop(config, workdir, flags)
    events = [row["event"] for row in helpers.rows(workdir / "events.jsonl")]
    assert {"weights", "preempted", "resume", "done"} <= set(events)
    metrics = workdir / "metrics.jsonl"
    steps = [row["step"] for row in helpers.rows(metrics)]
    assert steps == list(range(1, 5 * recipes.PARTS["train"] // 8 + 1))
    losses = [row["train/loss"] for row in helpers.rows(metrics)]
    assert np.mean(losses[-5:]) < np.mean(losses[:5])

    trained = results(workdir, steps[-1])
    again = helpers.run(config, workdir, "--mode=eval", *flags)
    assert again.returncode == 0, again.stderr
    assert results(workdir, steps[-1]) == trained

    done = helpers.python(
        *("-m", "vlc_jax.tools.export", "--workdir", workdir, "--to", "hf"),
        *("--out", tmp_path / "exported"),
    )
    assert done.returncode == 0, done.stderr
    zero_shot = recipes.wrapper(tmp_path, "zero_shot", small, "eval")
    arguments = f"weights={tmp_path / 'exported'},family=clip,variant=B/32,size=224"
    done = helpers.run(
        f"{zero_shot}:{arguments},path={tmp_path / 'test'}",
        tmp_path / "zero_shot",
        *("--mode=eval", "--config.eval.batch_size=8"),
    )
    assert done.returncode == 0, done.stderr
    assert results(tmp_path / "zero_shot", 0) == trained


def results(workdir, step):
    row = json.loads((workdir / f"evals/retrieval/{step}.json").read_text())
    return {name: metric["value"] for name, metric in row["metrics"].items()}

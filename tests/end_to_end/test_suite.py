"""All published sets in miniature: evaluated, killed in the middle, gone on with, reported."""

import json

import pytest

from tests.support import helpers, runs, sets
from vlc_jax.configs.eval import all as suite
from vlc_jax.input_pipeline.benchmarks import PUBLISHED

pytestmark = pytest.mark.slow

MODEL = (
    *("--config.steps=2", "--config.batch_size=8", "--config.optimizer.warmup_steps=1"),
    *("--config.model.image={'depth': 1}", "--config.model.text={'depth': 1}"),
    *("--config.eval.batch_size=32", "--config.input.preview=4", "--config.evals={}"),
)


def results(workdir):
    """Benchmark -> its result, with the time of the file; imported weights are of step 0."""
    files = sorted(workdir.glob("evals/*/0.json"))
    return {
        path.parent.name: (json.loads(path.read_text()), path.stat().st_mtime_ns) for path in files
    }


def test_every_set_is_evaluated_by_one_command_despite_a_kill(tmp_path):
    root, photos = sets.write_all(tmp_path / "sets"), tmp_path / "photos"
    table = helpers.write_jsonl(photos, helpers.write_photos(photos, 16))
    model, workdir = tmp_path / "model", tmp_path / "suite"
    helpers.run(f"configs/records.py:path={table},size=32,steps=2", model, *MODEL, code=0)
    tagger = sets.options("coco_order", root)["tagger"]
    config = f"configs/eval/all.py:run={model},root={root},sets=all,tagger={tagger}"
    cache = f"--config.eval.cache={tmp_path / 'features'}"
    with helpers.start(config, workdir, "--mode=eval", cache) as job:
        runs.wait_for(lambda: len(results(workdir)) >= 5, job)
        job.kill()
        job.wait()
    before = results(workdir)
    assert 5 <= len(before) < len(suite.SETS)
    done = helpers.run(config, workdir, "--mode=eval", cache, code=0)
    after = results(workdir)
    assert set(after) == set(suite.SETS) == set(PUBLISHED)
    for name, (row, changed) in before.items():
        assert after[name] == (row, changed), f"{name} was made again"
    for name, (row, _) in after.items():
        assert row["protocol"] == PUBLISHED[name][1].protocol
        assert {"weights", "pixels"} <= row["made_with"]["image"].keys()
    assert f"{len(suite.SETS)} benchmarks evaluated" in (workdir / "report.md").read_text()
    for text in (done.stdout, (workdir / "report.html").read_text()):
        assert "vg_relation: 4 cases; published are 23,937" in text
    assert all(name in (workdir / "report.md").read_text() for name in suite.SETS)

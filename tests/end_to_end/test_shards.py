"""A run on shards, read by blocks from a stage, and the same run resumed."""

import shutil

from tests.support import helpers
from vlc_jax.input_pipeline.commands import prepare

CONFIG = """
from tests.support import tiny


def get_config():
    config = tiny.get_config("steps=4")
    with config.unlocked():
        config.evals = {{}}
        config.checkpoint.every = 2
        config.input.source = "shards"
        config.input.source_options.update({{"path": {path!r}, "shuffle": "blocks"}})
    return config
"""


def test_a_run_by_blocks_from_a_stage_resumes_to_the_same_losses(tmp_path):
    shards, config, whole = tmp_path / "shards", tmp_path / "config.py", tmp_path / "whole"
    words = ["--source", "scenes", "--split", "train", "--option", "count=300", "--size", "40"]
    assert prepare.main([*words, "--shard-size", "100", "--out", str(shards)]) == 0
    config.write_text(CONFIG.format(path=str(shards)))
    stage = "--config.input.source_options.stage"
    helpers.run(str(config), whole, f"{stage}={tmp_path / 'a'}", code=0)
    rows = helpers.rows(whole / "metrics.jsonl")
    assert sum(row.get("perf/read_mb", 0) for row in rows) > 0
    assert {0 <= row.get("perf/stage_hit_fraction", 1) <= 1 for row in rows} == {True}
    size = sum(path.stat().st_size for path in shards.glob("*.array_record")) / 1e6
    assert 0 < sum(row.get("perf/staged_mb", 0) for row in rows) <= size * 1.001

    cut = shutil.copytree(whole, tmp_path / "cut")
    shutil.rmtree(cut / "checkpoints" / "4")
    (cut / "DONE").unlink()
    where = [f"{stage}={tmp_path / 'b'}", f"{stage}_gb=1"]
    helpers.run(str(config), cut, *where, code=0)
    again = helpers.rows(cut / "metrics.jsonl")
    assert [row["train/loss"] for row in again] == [row["train/loss"] for row in rows]
    assert {"resume", "config_change"} <= {r["event"] for r in helpers.rows(cut / "events.jsonl")}

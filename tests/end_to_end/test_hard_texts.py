"""A run with hard images, given negatives and made ones; the same with another generator."""

import json

import pytest

from tests.support import helpers
from vlc_jax.input_pipeline.commands import prepare

pytestmark = pytest.mark.slow

CONFIG = """
from vlc_jax.configs import records


def get_config(argument=None):
    config = records.get_config("path={path},holdout=0,steps=2,batch=8")
    with config.unlocked():
        config.input.source_options.id_column = "id"
        config.input.source_options.negatives_column = "negatives"
        config.input.source_options.hard_images_column = "near"
        config.input.hard_images = 1
        config.input.negatives.update({{"count": 2, "generators": {generators}}})
        config.evals = {{}}
        config.checkpoint.every = 1
    return config
"""


def write(tmp_path, **generators):
    config = tmp_path / "config.py"
    config.write_text(CONFIG.format(path=tmp_path / "captions.jsonl", generators=generators))
    return str(config)


@pytest.fixture
def photos(tmp_path):
    names = helpers.write_photos(tmp_path, 8)
    rows = [
        {"image": name, "caption": f"one {i} picture", "id": f"p{i}"}
        | {"negatives": [f"picture {i} one"], "near": [f"p{(i + 1) % 8}"] if i else []}
        for i, name in enumerate(names)
    ]
    helpers.write_rows(tmp_path / "captions.jsonl", rows)
    return tmp_path


def test_another_generator_does_not_resume_a_run(photos):
    config = write(photos, from_record=1.0, shuffle_words=1.0)
    helpers.run(config, photos / "run", code=0)
    events = {row["event"]: row for row in helpers.rows(photos / "run" / "events.jsonl")}
    assert events["start"]["steps"] == 2
    assert events["hard_images_missing"]["rows"] == 1  # of the eight records of the two batches
    path = photos / "run" / "env.json"
    facts = json.loads(path.read_text())
    facts["input"]["negatives/shuffle_words"] += " of another kind"
    path.write_text(json.dumps(facts))
    again = helpers.run(config, photos / "run", code=2)
    assert "negatives/shuffle_words" in again.stderr


def test_texts_of_another_version_end_the_run(photos):
    shards = photos / "shards"
    words = ["--source", "records", "--split", "train", "--size", "32", "--out", str(shards)]
    for option in (f"path={photos / 'captions.jsonl'}", f"image_folder={photos}"):
        words += ["--option", option]
    words += ["--generator-options", '{"left_right": {"mode": "authors"}}']
    assert prepare.main([*words, "--negatives", "left_right"]) == 0
    config = write(photos, left_right=1.0)
    source = {"path": str(shards)}
    flags = ["--config.input.source=shards", f"--config.input.source_options={source}"]
    refused = helpers.run(config, photos / "run", *flags, "--config.input.hard_images=0", code=2)
    assert "'left_right' was prepared with '1 mode=authors" in refused.stderr
    assert "Traceback" not in refused.stderr

"""Hard texts read from a table."""

import json
import pickle

import numpy as np
import pytest

from tests.support import helpers
from vlc_jax.input_pipeline.hard_texts import from_table, sampling
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources.scene_records import ScenesSource

RNG = np.random.default_rng


def table(tmp_path, *rows):
    path = helpers.write_rows(tmp_path / "texts.jsonl", rows)
    return str(path)


def test_a_caption_has_the_texts_of_all_its_rows(tmp_path):
    path = table(
        tmp_path,
        {"caption": "a dog ", "negatives": ["a cat", "a cow"], "positives": ["one dog"]},
        {"caption": "a dog", "negatives": ["a hen", "a cat", "a dog"], "image": "x.jpg"},
        {"caption": "a man"},
    )
    side, negatives = sampling.find_generator("from_table", {"path": path})
    assert side == "negatives"
    made = [negatives("a dog", RNG(seed), 9) for seed in range(8)]
    assert {tuple(sorted(texts)) for texts in made} == {("a cat", "a cow", "a hen")}
    assert len({negatives("a dog", RNG(seed), 1)[0] for seed in range(20)}) == 3
    assert len(pickle.loads(pickle.dumps(negatives))("a dog", RNG(0), 2)) == 2
    assert [*negatives("a man", RNG(0), 9), *negatives("a bus", RNG(0), 9)] == []
    positives = sampling.generator_table("positives")["from_table"](path)
    assert positives("a dog", RNG(0), 9) == ["one dog"]


def test_a_kind_of_texts_is_a_generator_of_its_own(tmp_path):
    kinds = {"negatives": ["a cat", "a man"], "negative_kinds": ["animal", "person"]}
    path = table(tmp_path, {"caption": "a dog"} | kinds)
    _, people = sampling.find_generator("from_table:person", {"path": path})
    _, every = sampling.find_generator("from_table", {"path": path})
    assert people("a dog", RNG(0), 9) == ["a man"]
    assert sorted(every("a dog", RNG(0), 9)) == ["a cat", "a man"]
    assert people.version != every.version
    with pytest.raises(DataError, match="holds no negatives of the kind 'plant'"):
        from_table.FromTable("negatives", path, kind="plant")
    path = table(tmp_path, {"caption": "a dog", "negatives": ["a cat"]})
    with pytest.raises(DataError, match="negative_kinds has a kind for each text"):
        from_table.FromTable("negatives", path, kind="animal")


def test_texts_of_a_scene_are_for_that_scene_alone(tmp_path):
    first, second = (record.meta["scene"] for record in ScenesSource(count=2))
    key = from_table.key_of(first)
    path = table(tmp_path, {"caption": "a ring", "scene": key, "negatives": ["a star"]})
    texts = from_table.FromTable("negatives", path)
    assert texts("a ring", RNG(0), 1, json.loads(json.dumps(first))) == ["a star"]
    assert not texts("a ring", RNG(0), 1, second)
    assert not texts("a ring", RNG(0), 1)


def test_the_version_changes_with_the_file(tmp_path):
    rows = [{"caption": "a dog", "negatives": [text]} for text in ("a cat", "a cow")]
    versions = [
        from_table.FromTable("negatives", table(tmp_path, row)).version for row in rows + rows[:1]
    ]
    assert versions[0] == versions[2] != versions[1]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"caption": ["a dog"], "negatives": ["a cat"]},
            "caption is one text per row; got .'a dog'",
        ),
        (
            {"caption": "a dog", "scene": {"world": "x"}, "negatives": ["a cat"]},
            "scene is one text per row",
        ),
        ({"caption": "a dog", "negatives": "a cat"}, "negatives is a list of texts; got 'a cat'"),
        ({"caption": "a dog", "negatives": [1]}, "negatives is a list of texts"),
        ({"caption": "a dog", "positives": ["one dog"]}, "holds no negatives"),
    ],
)
def test_a_row_of_another_shape_is_refused(tmp_path, row, message):
    with pytest.raises(DataError, match=message):
        from_table.FromTable("negatives", table(tmp_path, row))
    with pytest.raises(ValueError, match=r"no file .* hard_texts --balance"):
        from_table.FromTable("negatives", str(tmp_path / "none.jsonl"))

"""VALSE: cases that annotators found valid, images by data set, means, real counts."""

import json
import os
from pathlib import Path

import pytest

from vlc_jax.input_pipeline.benchmarks import valse
from vlc_jax.input_pipeline.record import DataError

DATA = os.environ.get("VLC_BENCHMARK_DATA", "")
real = pytest.mark.skipif(
    not DATA or not (Path(DATA) / "valse").is_dir(),
    reason="VLC_BENCHMARK_DATA names no folder with the real valse",
)


def test_cases_that_two_annotators_did_not_find_valid_are_left_out(root):
    assert len(valse.valse(root).cases) == 2 * 11
    everything = valse.valse(root, validated=False)
    assert len(everything.cases) == 3 * 11
    assert everything.cases[2].captions == ("A cook stirs the soup 1.", "The soup stirs a cook 1.")


def test_an_image_is_where_its_data_set_is(root):
    cases = valse.valse(root).cases
    assert all(case.images[0].is_file() for case in cases)
    assert {case.meta["record"].rsplit("/", 1)[0] for case in cases} == {
        "coco/train2014",
        "coco/val2014",
        "coco/val2017",
        "swig",
        "visdial/VisualDialog_val2018",
        "visual7w/images",
    }


def test_pieces_of_one_phenomenon_are_one_in_its_mean(root):
    groups = {case.group["subset"]: case.group["phenomenon"] for case in valse.valse(root).cases}
    assert sum(phenomenon == "counting" for phenomenon in groups.values()) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mturk": {"foil": 1}}, r"existence\.json: case 'a' has no number of votes"),
        ({"dataset": "flickr"}, r"existence\.json: case 'a' is of the data set 'flickr'"),
        ({"foil": None}, r"existence\.json: case 0 has no 'foil'"),
    ],
)
def test_a_wrong_row_is_named(root, tmp_path, change, message):
    row = next(iter(json.loads((root / "valse" / "existence.json").read_text()).values()))
    (tmp_path / "valse").mkdir()
    (tmp_path / "valse" / "existence.json").write_text(json.dumps({"a": row | change}))
    with pytest.raises(DataError, match=message):
        valse.valse(tmp_path, subsets=("existence",))


@real
def test_the_real_files_have_the_published_counts():
    benchmark = valse.valse(DATA)
    assert benchmark.notes == ()
    assert len(benchmark.cases) == sum(valse.SUBSETS.values()) == 7_702
    everything = valse.valse(DATA, validated=False).cases
    assert len(everything) == 8_782
    assert sum(case.captions[0] == case.captions[1] for case in everything) == 24

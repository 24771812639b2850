"""NaturalBench-Retrieval."""

import json

import pytest

from tests.support.sets import naturalbench as files
from vlc_jax.input_pipeline.benchmarks.naturalbench import naturalbench_retrieval
from vlc_jax.input_pipeline.record import DataError


def test_images_and_captions_of_a_row_are_a_pair(tmp_path):
    files.write(tmp_path)
    case = naturalbench_retrieval(tmp_path).cases[1]
    assert [path.name for path in case.images] == ["2.jpg", "3.jpg"]
    assert case.captions == ("A dog sits beside door 1.", "A dog stands beside door 1.")


def test_a_row_without_an_image_names_file_and_case(tmp_path):
    files.write(tmp_path)
    path = tmp_path / "NaturalBench-Retrieval" / "metadata.json"
    rows = json.loads(path.read_text())
    del rows[1]["image_1"]
    path.write_text(json.dumps(rows))
    with pytest.raises(DataError, match=r"metadata.json: case 1 has no 'image_1'"):
        naturalbench_retrieval(tmp_path)

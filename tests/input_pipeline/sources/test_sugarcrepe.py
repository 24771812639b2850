"""SugarCrepe's files are read by their keys; wrong ones are named."""

import json

import pytest

from tests.support import helpers
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import make_source


def sugarcrepe(folder, document):
    helpers.write_photos(folder, 2)
    (folder / "swap.json").write_text(json.dumps(document))
    return make_source("sugarcrepe", "train", annotations=folder / "swap.json", images=folder)


def test_sugarcrepes_form_is_read_by_its_keys(tmp_path):
    entry = {"filename": "photo_0.jpg", "caption": "a b", "negative_caption": "b a"}
    source = sugarcrepe(tmp_path, {"0": entry, "7": entry | {"filename": "x/photo_1.jpg"}})
    record = source.find("7")
    assert (record.captions, record.negatives) == (["a b"], [["b a"]])
    assert record.image == tmp_path / "photo_1.jpg"
    with pytest.raises(DataError, match=r"swap\.json: entry '1' has no text 'negative_caption'"):
        sugarcrepe(tmp_path, {"0": entry, "1": {"filename": "photo_1.jpg", "caption": "a"}})
    with pytest.raises(ValueError, match=r"is a list of 1 .*; annotations is an object"):
        sugarcrepe(tmp_path, [entry])

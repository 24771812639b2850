"""DAC's folders: dense captions of segments or of a language model, each in the form it is in."""

import json
import pickle

import numpy as np
import pytest

from tests.support import damage, helpers
from vlc_jax.input_pipeline.hard_texts.sampling import HardTexts
from vlc_jax.input_pipeline.images.transforms import ImageTransform
from vlc_jax.input_pipeline.loader.examples import Examples
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import make_source

SEGMENTS = {
    "image": {"width": 20, "height": 10, "image_id": 3},
    "annotations": [
        {"area": 2, "caption": "a wheel", "bbox": [0, 0, 1, 2]},
        {"area": 1, "caption": "a screw"},  # half a hundredth of the image
        {"area": 150.0, "caption": " a red car "},
    ],
}
DENSE = [
    ({"caption": ["a tree", "", "a red roof"]}, ["a tree", "a red roof"]),  # SAM_dense
    (["A dog runs.", "The grass is green."], ["A dog runs.", "The grass is green."]),  # LLM_dense
    (SEGMENTS, ["a wheel", "a red car"]),
    ({"caption": []}, []),  # no segment was large enough
]


@pytest.fixture
def folder(tmp_path):
    names = helpers.write_photos(tmp_path, len(DENSE))
    for part in ("captions", "dense"):
        (tmp_path / part).mkdir()
    for name, (document, _) in zip(names, DENSE, strict=True):
        caption = {"positive_caption": [f"caption of {name}"]}
        (tmp_path / f"captions/{name}.json").write_text(json.dumps(caption))
        (tmp_path / f"dense/{name}.json").write_text(json.dumps(document))
    return tmp_path


def dac(folder, **options):
    given = {"captions": folder / "captions", "dense": folder / "dense", "images": folder}
    return make_source("dac", "train", **(given | options))


def test_each_form_gives_its_texts(folder):
    (folder / "dense/alone.jpg.json").write_text("[]")  # without a caption: left out
    source = dac(folder)
    assert len(source) == len(DENSE)
    for index, (_, texts) in enumerate(DENSE):
        record = source[index]
        assert record.captions == [f"caption of {record.image.name}"]
        assert record.positives == [texts]
        assert pickle.loads(pickle.dumps(source))[index] == record
    assert dac(folder, min_area=0.0)[2].positives == [["a wheel", "a screw", "a red car"]]
    before = source.fingerprint
    (folder / f"dense/{source[1].id}.json").write_text('["Another sentence."]')
    assert dac(folder).fingerprint != before


def test_training_draws_bags_of_them(folder):
    bag = HardTexts(count=2, shares={"from_record": 1.0})
    examples = Examples(dac(folder), ImageTransform(8), 0, np.inf, {}, positives=bag)
    drawn = {row.record.id: row.positives for n in range(4) for row in examples.group(n, {})}
    expected = {dac(folder)[i].id: {*texts} for i, (_, texts) in enumerate(DENSE)}
    assert {name: {*texts} for name, texts in drawn.items()} == expected


def test_a_file_of_another_form_is_a_bad_record(folder):
    source = dac(folder)
    path = folder / f"dense/{source[2].id}.json"
    for document, message in (
        ({"text": []}, "none of the forms .*a text per segment"),
        ({"caption": [3]}, "a dense caption is text; got 3"),
        (SEGMENTS | {"image": {"width": 0, "height": 1}}, "width and height are pixels; got 0"),
        (SEGMENTS | {"annotations": [{"area": 3}]}, "segment 0 has an area and a caption"),
        (SEGMENTS | {"annotations": [{"area": 999, "caption": "a"}]}, "area of 0 to 200 pixels"),
    ):
        path.write_text(json.dumps(document))
        with pytest.raises(DataError, match=message):
            source[2]
    rng = np.random.default_rng(0)
    for _ in range(40):
        path.write_text(json.dumps(SEGMENTS))
        path.write_bytes(damage.damaged(path, rng))
        try:
            texts = dac(folder)[2].positives[0]
            assert all(isinstance(text, str) and text.strip() for text in texts)
        except DataError as error:
            assert path.name in str(error)  # noqa: PT017


def test_folders_that_do_not_belong_together_are_refused(folder, tmp_path):
    with pytest.raises(ValueError, match="dense: there is no folder"):
        dac(folder, dense=tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"4 in .*captions, 0 in .*empty; .* 0001.jpg.json"):
        dac(folder, dense=tmp_path / "empty")

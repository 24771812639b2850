"""A set whose captions, or images, are all the same says so beside its scores."""

import numpy as np
import pytest

from tests.support import helpers
from vlc_jax.input_pipeline.benchmarks import equal_cases
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.setup import data

CAPTIONS = "1 distinct of 40 captions: equal captions have equal scores"
IMAGES = "1 distinct of 40 images: equal images have equal scores"


def notes_of(tmp_path, captions, images):
    rows = [{"image": i, "caption": c} for i, c in zip(images, captions, strict=True)]
    path = helpers.write_rows(tmp_path / "a.jsonl", rows)
    options = {"source": "records", "split": "all", "path": str(path), "join_rows": False}
    return data.benchmark("a field", "retrieval", options).read().notes


def test_captions_and_images_that_are_all_one_are_counted(tmp_path):
    names = helpers.write_photos(tmp_path, 40)
    texts = [f"photo {n}" for n in range(40)]
    assert notes_of(tmp_path, texts, names) == ()
    assert notes_of(tmp_path, ["a photo"] * 40, names) == (CAPTIONS,)
    few = ["a photo", *texts[:19], *["a photo"] * 20]
    assert notes_of(tmp_path, few, names) == (CAPTIONS.replace("1 ", "20 "),)
    for name in names[1:]:  # other files of one content
        (tmp_path / name).write_bytes((tmp_path / names[0]).read_bytes())
    assert notes_of(tmp_path, texts, names) == (IMAGES,)


@pytest.mark.parametrize("protocol", ["choice", "triplet"])
def test_cases_that_share_some_captions_have_no_note(protocol):
    pixels = np.zeros((2, 4, 4, 3), np.uint8)
    pixels[1] = 9
    cases = [Case(str(n), (pixels[n % 2],), ("a red square", "a blue one")) for n in range(20)]
    assert equal_cases.noted(Benchmark("b", cases, "1"), protocol).notes == ()
    cases = [Case(str(n), (pixels[0],), ("a square", "a square")) for n in range(20)]
    notes = equal_cases.noted(Benchmark("b", cases, "1"), protocol).notes
    assert [note.partition(":")[0] for note in notes] == [
        "1 distinct of 40 captions",
        "1 distinct of 20 images",
    ]


def test_an_image_that_cannot_be_read_is_left_to_its_evaluation(tmp_path):
    cases = [Case(str(n), (tmp_path / f"{n}.jpg",), (f"{n}",)) for n in range(2)]
    assert equal_cases.noted(Benchmark("b", cases, "1"), "retrieval").notes == ()

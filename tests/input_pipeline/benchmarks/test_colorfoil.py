"""ColorFoil: which captions it takes, foils, what it leaves out."""

import pytest

from tests.support.sets.files import write_json
from vlc_jax.input_pipeline.benchmarks import colorfoil
from vlc_jax.input_pipeline.record import DataError


def test_the_first_caption_that_names_a_colour_is_taken(root):
    captions = [case.captions[0] for case in colorfoil.colorfoil(root).cases]
    assert captions == [
        "a red cup and a gray pan",
        "a red cup covered by a white pan",
        "a blue cup",
    ]


def test_a_foil_has_other_colours_and_the_same_other_words(root):
    for seed in range(20):
        cases = colorfoil.colorfoil(root, seed=seed).cases
        for case in cases:
            for right, wrong in zip(*(caption.split() for caption in case.captions), strict=True):
                if right in colorfoil.COLOURS:
                    assert wrong in colorfoil.FOILS
                    assert wrong.replace("gray", "grey") != right.replace("gray", "grey")
                else:
                    assert wrong == right


def test_foils_are_drawn_from_the_seed_case_by_case(root):
    first, again, other = (colorfoil.colorfoil(root, seed=seed) for seed in (1, 1, 2))
    assert first.cases == again.cases
    assert first.version != other.version
    assert colorfoil.colorfoil(root, count=2).cases == first.cases[:2]


def test_images_without_colours_are_left_out_by_their_place(tmp_path):
    images = [{"id": n, "file_name": f"{n}.jpg"} for n in range(600)]
    annotations = [{"image_id": n, "caption": "a red cup"} for n in range(600)]
    document = {"images": images, "annotations": annotations}
    write_json(tmp_path / "coco" / "annotations" / "captions_val2017.json", document)
    records = {case.meta["record"] for case in colorfoil.colorfoil(tmp_path).cases}
    assert {f"{n}.jpg" for n in range(600)} - records == {"550.jpg"}


def test_another_document_is_refused(tmp_path):
    write_json(tmp_path / "coco" / "annotations" / "captions_val2017.json", {"images": []})
    with pytest.raises(DataError, match=r"captions_val2017\.json has no images and captions"):
        colorfoil.colorfoil(tmp_path)

"""ImageCoDe: the correct image first, order of frames, static images and videos."""

from collections import Counter

import pytest

from tests.support.sets import imagecode as files
from tests.support.sets.random_scorer import random_scorer
from vlc_jax import evaluators
from vlc_jax.input_pipeline.benchmarks.imagecode import imagecode
from vlc_jax.input_pipeline.record import DataError


def test_the_described_image_is_first_and_others_in_order(root):
    cases = imagecode(root).cases
    names = [[path.stem for path in case.images] for case in cases]
    rest = [f"img{number}" for number in range(10)]
    assert names[0] == ["img3", *rest[:3], *rest[4:]]
    assert names[1] == rest
    assert {path.parent.name for path in cases[0].images} == {"open-images-7_00a1"}


def test_an_index_is_the_place_of_a_frame_and_not_its_number(root):
    frames = [path.stem for path in imagecode(root).cases[2].images]
    assert frames == ["img18", *[f"img{number}" for number in files.FRAMES[:-1]]]


def test_descriptions_lose_blanks_and_are_grouped(root):
    benchmark = imagecode(root)
    assert [case.captions for case in benchmark.cases] == [
        ("A cup, seen from above.",),
        ("Two cups near the edge.",),
        ("The man turns to the left",),
    ]
    metrics = evaluators.evaluate("choice", benchmark, random_scorer()).metrics
    assert metrics["accuracy"].chance == pytest.approx(1 / 10)
    assert (metrics["accuracy/static"].count, metrics["accuracy/video"].count) == (2, 1)


def test_a_set_that_lacks_an_image_is_refused(root):
    folder = root / "imagecode" / "image-sets" / "open-images-7_00a1"
    (folder / "img4.jpg").unlink()  # all later images would change their index
    with pytest.raises(DataError, match=r"open-images-7_00a1 needs 10 images"):
        imagecode(root)
    folder.rename(root / "elsewhere")
    assert not any(path.exists() for path in imagecode(root).cases[0].images)


def test_the_authors_file_has_the_published_descriptions(real_data):
    benchmark = imagecode(real_data)
    assert Counter(case.group for case in benchmark.cases) == {"static": 430, "video": 1872}
    assert len({case.meta["record"] for case in benchmark.cases}) == 1039
    assert benchmark.notes == ()

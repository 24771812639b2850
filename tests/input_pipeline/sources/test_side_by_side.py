"""Two images as one: which, where, and the texts that are true of both."""

import itertools
import pickle

import numpy as np
import pytest

from tests.support import helpers, table_files
from vlc_jax.input_pipeline.hard_texts import sampling
from vlc_jax.input_pipeline.images.transforms import ImageTransform
from vlc_jax.input_pipeline.loader.examples import Examples
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import make_source

GENERATOR = {"from_record_in_order": 1.0}


@pytest.fixture
def make(tmp_path):
    """Twelve grey pictures of 30 x 20, the third damaged, each with three captions."""
    folder = table_files.write_images(tmp_path)
    (folder / "p02.jpg").write_bytes(b"broken")
    rows = table_files.table(caption=lambda i: [f"{i} first.", f"{i} second", f"{i} third"])
    path = helpers.write_rows(folder / "a.jsonl", rows)

    def make(**options):
        options = {"size": 40, "base_options": {"path": str(path)}, **options}
        return make_source("side_by_side", "train", **options)

    return make


def sentences(text):
    return [part.split() for part in text.removesuffix(".").split(". ")]


def test_a_record_has_the_images_and_the_captions_of_two(make):
    source, seen = make(), set()
    for index in [i for i in range(12) if i != 2]:
        record = source[index]
        halves = record.image[:20], record.image[20:]  # wide images lie above one another
        levels = sorted(round(half.mean() / 20) for half in halves)
        assert all(np.ptp(half) < 3 for half in halves)
        (caption,), ((exchanged, *more),) = record.captions, record.positives
        parts = sentences(caption)
        numbers = sorted(int(number) for number, _ in parts)
        assert numbers == levels
        assert int(parts[0][0]) == index
        assert numbers[0] < numbers[1]
        assert sentences(exchanged) == parts[::-1]
        assert {word for _, word in parts} == {"first"}
        for text in more:
            assert sorted(int(number) for number, _ in sentences(text)) == numbers
        assert len(more) == 2
        seen.add((levels[0] == round(halves[0].mean() / 20), caption))
    assert {is_sorted for is_sorted, _ in seen} == {False, True}


def test_pairs_are_a_function_of_the_seed_and_the_record(make):
    captions = [[make(seed=seed)[i].captions for i in (0, 5, 9)] for seed in (0, 0, 1)]
    assert captions[0] == captions[1] != captions[2]
    source, other = make(), make(seed=1)
    assert source.fingerprint == make().fingerprint != other.fingerprint
    again = pickle.loads(pickle.dumps(source))[5]
    np.testing.assert_array_equal(again.image, source[5].image)


def test_training_meets_a_pair_and_its_first_image_alone(make):
    source = make()
    texts = sampling.make_hard_texts("positives", count=3, generators=GENERATOR)
    crop = ImageTransform(40, "none")
    examples = Examples(source, crop, 0, 1, {}, hard_images=1, positives=texts)
    for pair, single in itertools.chain(examples.group(number, {}) for number in range(8)):
        assert pair.positives == source.find(pair.record.id).positives[0]
        assert sentences(single.caption) == sentences(pair.caption)[:1]
        assert not single.positives
        assert single.pixels.shape == pair.pixels.shape == (40, 40, 3)


def test_what_is_no_pair_is_refused(make):
    with pytest.raises(ValueError, match="size is even"):
        make(size=41)
    source = make()
    with pytest.raises(DataError, match=r"p02\.jpg"):
        source[2]
    with pytest.raises(DataError, match="no record '12/first'"):
        source.find("12/first")


def test_an_image_stands_beside_one_with_another_caption(tmp_path):
    folder = table_files.write_images(tmp_path)
    captions = {0: "a cat", 1: "a cat.", 2: "a dog"}
    rows = table_files.table(caption=lambda i: [captions.get(i, "a cat")])[:3]
    path = helpers.write_rows(folder / "a.jsonl", rows)
    options = {"path": str(path), "holdout": 0.0}
    seeds = (make_source("side_by_side", "train", base_options=options, seed=k) for k in range(4))
    pairs = [source[0].captions[0] for source in seeds]
    assert set(pairs) == {"a cat. a dog."}

"""The scenes as a source of records."""

import json
import pickle

import numpy as np
import pytest

from vlc_jax.input_pipeline.scenes import draw, grammar, sample
from vlc_jax.input_pipeline.scenes import world as worlds
from vlc_jax.input_pipeline.sources.scene_records import IMAGES, ScenesSource


def test_record_is_the_drawn_scene_with_true_captions():
    source = ScenesSource(split="test", count=50)
    for i in range(50):
        record = source[i]
        scene = sample.sample_scene(source.world, "test", i)
        assert record.id == f"scenes-mini-v1/test/{i}"
        np.testing.assert_array_equal(record.image, draw.draw(scene))
        assert worlds.from_json(record.meta["scene"], source.world) == scene
        assert len(record.captions) == 4
        for text in record.captions:
            assert grammar.is_true(grammar.parse(text, source.world), scene)
        json.dumps(record.meta)


def test_length_is_the_count_and_indices_outside_are_refused():
    source = ScenesSource(count=3)
    assert len(source) == 3
    assert len([record.id for record in source]) == 3
    with pytest.raises(IndexError, match="record 3 of 3"):
        source[3]
    with pytest.raises(IndexError):
        source[-1]


def test_pictures_do_not_depend_on_the_captions():
    plain = ScenesSource(count=20)
    other = ScenesSource(count=20, captions=1, caption_options={"colour": 1.0, "relation": 1.0})
    assert all((plain[i].image == other[i].image).all() for i in range(20))
    assert [len(other[i].captions) for i in range(20)] == [1] * 20


def test_fingerprint_tells_world_split_count_and_captions():
    sources = [
        ScenesSource(),
        ScenesSource("scenes-64"),
        ScenesSource(split="validation"),
        ScenesSource(count=100),
        ScenesSource(captions=2),
        ScenesSource(world_options={"canvas": 48}),
        ScenesSource(caption_options={"synonyms": 0.01}),
        ScenesSource(caption_options={"completeness": 0.5}),
        ScenesSource(caption_options={"completeness": 0.5, "saliency": 0.5}),
    ]
    assert len({source.fingerprint for source in sources}) == len(sources)
    # of runs and stores of every version, whose captions are the same
    assert sources[0].fingerprint == "scenes-mini-v1/train/64000/captions-4-5d5f5088"
    assert ScenesSource(caption_options={"synonyms": 0.002}).fingerprint == sources[0].fingerprint


@pytest.mark.parametrize("count", [2, 7, 24])
def test_permuted_images_are_those_of_other_records_once_each(count):
    paired, permuted = (ScenesSource(count=count, images=images) for images in IMAGES)
    images = [record.image.tobytes() for record in paired]
    shown = [record.image.tobytes() for record in permuted]
    assert sorted(shown) == sorted(images)
    assert all(image != own for image, own in zip(shown, images, strict=True))
    for record, own in zip(permuted, paired, strict=True):
        assert (record.id, record.captions, record.meta) == (own.id, own.captions, own.meta)
        assert permuted.find(record.id).image.tobytes() == record.image.tobytes()
    assert permuted.fingerprint != paired.fingerprint


def test_permuted_images_go_with_their_hard_images():
    options = {"count": 6, "captions": 1, "hard_images": [("relation", 1), ("attribute", 1)]}
    paired, permuted = (ScenesSource(**options, images=images) for images in IMAGES)
    for i in range(6):
        own, other, shown = paired[i], paired[(i + 3) % 6], permuted[i]
        (hard_id,) = own.hard_images
        for record, kept, seen in (
            (shown, own, other),
            (permuted.find(hard_id), paired.find(hard_id), paired.find(*other.hard_images)),
        ):
            np.testing.assert_array_equal(record.image, seen.image)
            texts = (record.id, record.captions, record.negatives, record.hard_images, record.meta)
            assert texts == (kept.id, kept.captions, kept.negatives, kept.hard_images, kept.meta)
    assert permuted.fingerprint == f"{paired.fingerprint}/images-permuted"


def test_source_survives_pickling():
    source = ScenesSource("scenes-64", world_options={"depth": 0.5})
    copy = pickle.loads(pickle.dumps(source))
    assert copy.fingerprint == source.fingerprint
    assert (copy[7].image == source[7].image).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"world": "scene_mini"}, "did you mean 'scenes-mini'"),
        ({"split": "training"}, "did you mean 'train'"),
        ({"count": 0}, "count must be at least 1; got 0"),
        ({"captions": 0}, "captions must be at least 1; got 0"),
        ({"world_options": {"canvs": 3}}, "did you mean 'canvas'"),
        ({"caption_options": {"sizes": 3}}, "did you mean 'size'"),
        ({"images": "permute"}, "did you mean 'permuted'"),
        ({"images": "permuted", "count": 1}, "needs two records"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ScenesSource(**options)

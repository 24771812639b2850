"""The handwritten digits: fixed, stratified splits and captions that name the digit."""

import collections

import numpy as np
import pytest

from vlc_jax.input_pipeline.sources import digits
from vlc_jax.input_pipeline.sources.digits import DigitsSource


def test_splits_are_disjoint_stratified_and_complete():
    ids, counts = set(), {}
    for split in ("train", "validation", "test"):
        source = DigitsSource(split)
        records = [source[i] for i in range(len(source))]
        counts[split] = collections.Counter(record.meta["label"] for record in records)
        assert not ids & {record.id for record in records}
        ids |= {record.id for record in records}
    assert len(ids) == 1_797
    for label in range(10):
        total = sum(counts[split][label] for split in counts)
        assert abs(counts["train"][label] - 0.7 * total) <= 1
        assert abs(counts["test"][label] - 0.2 * total) <= 1.5


def test_the_split_never_changes():
    source = DigitsSource("test")
    assert len(source) == 360
    assert [source[i].id for i in (0, 1, 359)] == ["digits/2", "digits/18", "digits/1793"]
    assert DigitsSource("test").fingerprint == source.fingerprint
    assert DigitsSource("train").fingerprint != source.fingerprint


def test_images_have_the_size_and_the_contrast_of_the_scans():
    record = DigitsSource("train", size=24)[0]
    assert record.image.shape == (24, 24, 3)
    assert record.image.dtype == np.uint8
    assert record.image.min() < 20
    assert record.image.max() > 200


def test_every_caption_names_the_digit_of_its_label():
    source = DigitsSource("validation")
    for i in range(len(source)):
        record = source[i]
        word = digits.CLASSES[record.meta["label"]]
        assert len(record.captions) == len(digits.TEMPLATES)
        assert all(word in caption.split() for caption in record.captions)


def test_unknown_splits_and_sizes_are_refused():
    with pytest.raises(ValueError, match=r"\['test', 'train', 'validation'\]"):
        DigitsSource("val")
    with pytest.raises(ValueError, match="at least 8"):
        DigitsSource("train", size=4)

"""A source of numbered records, and a loader of it."""

import numpy as np

from vlc_jax.input_pipeline.images.transforms import ImageTransform
from vlc_jax.input_pipeline.loader.loader import make_train
from vlc_jax.input_pipeline.record import Record
from vlc_jax.input_pipeline.tokenizers.word_level import WordTokenizer

NUMBERS = [f"n{i}" for i in range(30)]
WORDS = WordTokenizer(4, words=(*NUMBERS, "first", "second", "not", "same"))


class Numbered:
    """Record i has id ri, grey level i and captions "ni first" and "ni second"; some are bad."""

    fingerprint = "numbered"

    def __init__(self, count=30, bad=(), size=8, **fields):
        self._count, self._bad, self._size, self._fields = count, bad, size, fields

    def __len__(self):
        return self._count

    def __getitem__(self, index):
        if index in self._bad:
            return Record(f"r{index}", b"broken", ["n0 first"])
        pixels = np.full((self._size, self._size, 3), index, np.uint8)
        captions = [f"n{index} first", f"n{index} second", " "]
        return Record(f"r{index}", pixels, **{"captions": captions, **self._fields})


def loader(source=None, transform=None, tokenizer=WORDS, **options):
    options = {"batch_size": 8, "seed": 5} | options
    return make_train(source or Numbered(), tokenizer, transform or ImageTransform(8), **options)


def take(count, source=None, **options):
    with loader(source, **options) as batches:
        return [next(batches) for _ in range(count)]


def drain(batches, count=10):
    for _ in range(count):
        next(batches)


def assert_equal(got, expected):
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert one.keys() == other.keys()
        for key in one:
            np.testing.assert_array_equal(one[key], other[key], err_msg=key)


def joined(shares):
    """Batches of a run from those of its hosts."""
    return [
        {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        for parts in zip(*shares, strict=True)
    ]

"""A head, a source, a tokenizer, a benchmark with its protocol, and a model size."""

import numpy as np

from vlc_jax.evaluators import Protocol, choice
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import Record
from vlc_jax.input_pipeline.tokenizers.tokenizer import Tokenizer
from vlc_jax.models.heads import Head
from vlc_jax.models.variants import Sizes

TINY = Sizes("small", 8, 16, 8, (8, 1, 2), (8, 1, 2))


class Halved(Head):
    """Half of CLIP's score."""

    def score(self, image, text):
        return 0.5 * super().score(image, text)


class Birds:
    """Grey squares, whose captions are their numbers."""

    fingerprint = "birds 1"

    def __init__(self, split: str, count: int = 8):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        image = np.full((16, 16, 3), 9 * index, np.uint8)
        return Record(f"bird_{index}", image, [f"bird {index}"])


class Letters(Tokenizer):
    """An id for each letter."""

    vocab_size, pad_id, eos_id, fingerprint = 40, 0, 1, "letters 1"

    def __init__(self, context_length: int):
        self.context_length = context_length

    def rows(self, texts):
        return [[2 + ord(letter) % 38 for letter in text] for text in texts]


def pairs(split="all", count=None):
    """Cases, the correct caption first."""
    images = [np.full((16, 16, 3), 50 * i, np.uint8) for i in range(4)]
    cases = [Case(f"pair_{i}", (image,), ("a bird", "no")) for i, image in enumerate(images)]
    return Benchmark("pairs", cases[:count], version="1")


CHOICE = Protocol(choice.evaluate, summary=("accuracy",), correct="accuracy")
PAIRS = (pairs, "birdwatch.parts.CHOICE")

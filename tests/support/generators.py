"""Small generators of texts for tests of what is done with them."""

import numpy as np

from vlc_jax.input_pipeline.record import DataError


def every(generator, caption, count=1, seeds=300):
    """All texts that the generator makes of the caption in so many calls."""
    draws = [generator(caption, np.random.default_rng(seed), count) for seed in range(seeds)]
    return {text for texts in draws for text in texts}


def made(generator, caption, count=9):
    """The texts of one call."""
    return list(generator(caption, np.random.default_rng(0), count))


class Reversal:
    """The words in reverse order; of one word nothing."""

    name = "reversal"
    version = "reversal 1"

    def __call__(self, caption, rng, count, scene=None):
        words = caption.split()
        return [" ".join(reversed(words))] if len(words) > 1 else []


class Prefix:
    """The caption behind a text; one that holds `refused` cannot be tagged."""

    name = "prefix"

    def __init__(self, prefix, refused="\0"):
        self._prefix, self._refused = prefix, refused
        self.version = f"prefix {prefix}"

    def __call__(self, caption, rng, count, scene=None):
        if self._refused in caption:
            raise DataError(f"cannot tag {caption!r}")
        return [self._prefix + caption]


class Numbers:
    """Random numbers behind the caption, and a scene's before them."""

    name = "numbers"
    version = "numbers 1"

    def __call__(self, caption, rng, count, scene=None):
        start = "" if scene is None else f"{scene['name']} "
        return [f"{start}{caption} n{number}" for number in rng.permutation(30)[:count]]

"""Retrieval benchmarks whose texts or images are shuffled.

Yuksekgonul et al., "When and why vision-language models behave like bags-of-words" (ICLR 2023),
section 3: a bag-of-words model retrieves as well as before.
"""

import dataclasses
import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from vlc_jax.input_pipeline.case import Benchmark
from vlc_jax.input_pipeline.hard_texts.negatives import NEGATIVES
from vlc_jax.input_pipeline.hard_texts.sampling import text_of
from vlc_jax.input_pipeline.hard_texts.shuffles import TAGGED_SHUFFLES
from vlc_jax.input_pipeline.images.image_ops import SHUFFLES as IMAGE_SHUFFLES
from vlc_jax.input_pipeline.record import ShuffledImage

TEXT_SHUFFLES = (*TAGGED_SHUFFLES, "shuffle_within_trigrams", "shuffle_trigrams", "shuffle_words")


def shuffled(
    benchmark: Benchmark,
    text_shuffle: str | None = None,
    image_shuffle: str | None = None,
    shuffle_seed: int = 0,
    tagger: str = "spacy:en_core_web_sm",
) -> Benchmark:
    """The benchmark with shuffled captions or images.

    text_shuffle: one of TEXT_SHUFFLES, in mode "authors"; a caption without another order stays.
      tagger: for the first two of them.
    image_shuffle: rows_4, cols_4 or patches_9, of the resized and cropped image.
    shuffle_seed: seeds a generator per case and caption. (ARO's shuffles depend on the number of
      workers.)
    """
    for option, value, known in (
        ("text_shuffle", text_shuffle, TEXT_SHUFFLES),
        ("image_shuffle", image_shuffle, tuple(IMAGE_SHUFFLES)),
    ):
        if value is not None and value not in known:
            raise ValueError(f"{option} is None or one of {known}; got {value!r}")
    if text_shuffle is None and image_shuffle is None:
        return benchmark
    cases, version = list(benchmark.cases), ""
    if text_shuffle is not None:
        needs_tags = {"tagger": tagger} if text_shuffle in TAGGED_SHUFFLES else {}
        shuffle = NEGATIVES[text_shuffle](mode="authors", **needs_tags)
        version = str(shuffle.version)
        for number, case in enumerate(cases):
            rngs = (
                np.random.default_rng((shuffle_seed, number, k)) for k in range(len(case.captions))
            )
            # a generator per caption: `count` and other captions do not change its order
            texts = zip(map(text_of, case.captions), rngs, strict=True)
            captions = tuple(next(iter(shuffle(text, rng, 1)), text) for text, rng in texts)
            cases[number] = dataclasses.replace(case, captions=captions)
    if image_shuffle is not None:
        parts = int(np.prod(IMAGE_SHUFFLES[image_shuffle]))
        for number, case in enumerate(cases):
            order = np.random.default_rng((shuffle_seed, number)).permutation(parts)
            image = ShuffledImage(case.images[0], image_shuffle, tuple(order.tolist()))
            cases[number] = dataclasses.replace(case, images=(image,))
    settings = (text_shuffle, image_shuffle, shuffle_seed, version)
    name = "/".join(str(setting) for setting in settings)
    return dataclasses.replace(benchmark, cases=tuple(cases), version=f"{benchmark.version}/{name}")


def with_shuffles(read: Callable[..., Benchmark]) -> Callable[..., Benchmark]:
    """Adds the options of `shuffled` to a reader."""
    names = [*inspect.signature(shuffled).parameters][1:]

    @wraps(read)
    def reader(*args: Any, **options: Any) -> Benchmark:
        shuffle = {name: options.pop(name) for name in names if name in options}
        return shuffled(read(*args, **options), **shuffle)

    return reader

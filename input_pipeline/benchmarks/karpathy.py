"""Image-text retrieval on Karpathy's test splits of COCO and Flickr30k, optionally shuffled.

Captions are unchanged, as in CLIP_benchmark; `prepare=True` applies ARO's preprocessing.
"""

from collections.abc import Iterator
from typing import Any

from vlc_jax.input_pipeline.benchmarks import published
from vlc_jax.input_pipeline.benchmarks.aro import karpathy_rows, prepare_caption
from vlc_jax.input_pipeline.benchmarks.shuffled import shuffled
from vlc_jax.input_pipeline.case import Benchmark, Case

CAPTIONS = {"coco_retrieval": 25_010, "flickr30k_retrieval": 5_000}


@published.reader
def coco_retrieval(files: published.Files, **options: Any) -> Benchmark:
    """5,000 images of COCO with 25,010 captions. options: as `flickr30k_retrieval`."""
    return _retrieval(files, **options)


@published.reader
def flickr30k_retrieval(files: published.Files, **options: Any) -> Benchmark:
    """1,000 images of Flickr30k with 5,000 captions.

    options:
      prepare: apply ARO's preprocessing (`aro.prepare_caption`); implied by text_shuffle.
      text_shuffle, image_shuffle, shuffle_seed, tagger: options of `shuffled`.
    """
    return _retrieval(files, **options)


def _retrieval(
    files: published.Files, prepare: bool = False, text_shuffle: str | None = None, **shuffle: Any
) -> Benchmark:
    is_prepared = prepare or text_shuffle is not None  # ARO shuffles preprocessed captions

    def cases() -> Iterator[Case]:
        for number, (image, captions) in enumerate(karpathy_rows(files, files.file)):
            texts = map(prepare_caption, captions) if is_prepared else captions
            yield Case(published.case_id(number, image), (files.image(image),), tuple(texts))

    benchmark = files.benchmark(cases())
    number = sum(len(case.captions) for case in benchmark.cases)
    # Files counts cases, which are images here
    if files.count is None and number != CAPTIONS[files.name]:
        note = f"{number:,} captions; published are {CAPTIONS[files.name]:,}"
        benchmark = published.amended(benchmark, note)
    return shuffled(benchmark, text_shuffle, **shuffle)

"""Bytes and strings -> batches of numpy arrays. This is the only door; jax stays outside.

source = make_source("records", "train", path="captions.jsonl", image_folder="images")
tokenizer = make_tokenizer("clip", 77, path="bpe_simple_vocab_16e6.txt.gz")
transform = ImageTransform(224)
print(preview(source, tokenizer, transform))
with make_train(source, tokenizer, transform, batch_size=256, seed=0) as batches:
    for batch in batches: ...
"""

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from input_pipeline.image import NORMALISATIONS, ImageTransform
from input_pipeline.loader import Loader, make_train
from input_pipeline.quality import preview
from input_pipeline.record import DataError, ImageLike, Record, Source
from input_pipeline.sources import SOURCES
from input_pipeline.text import TOKENIZERS
from input_pipeline.text.folder import files as tokenizer_files
from input_pipeline.text.folder import vocabulary as folder_vocabulary
from input_pipeline.text.tokenizers import Tokenizer

__all__ = [
    "NORMALISATIONS",
    "SOURCES",
    "TOKENIZERS",
    "DataError",
    "ImageLike",
    "ImageTransform",
    "Loader",
    "Record",
    "Source",
    "Tokenizer",
    "folder_vocabulary",
    "make_source",
    "make_tokenizer",
    "make_train",
    "preview",
    "tokenizer_files",
]


def make_source(name: str, split: str, **options: Any) -> Source:
    """The source of this name (table `sources.SOURCES`) with its own options.

    Raises ValueError for an unknown name, an unknown option or a value that does not fit, DataError
    for data that cannot be used.
    """
    return _build("source", SOURCES, name, split=split, **options)


def make_tokenizer(name: str, context_length: int, **options: Any) -> Tokenizer:
    """The tokenizer of this name (table `text.TOKENIZERS`) with its own options.

    Raises ValueError for an unknown name, an unknown option or a file that does not fit.
    """
    return _build("tokenizer", TOKENIZERS, name, context_length=context_length, **options)


def _build(kind: str, table: Mapping[str, Callable[..., Any]], name: str, **options: Any) -> Any:
    if name not in table:
        raise ValueError(f"no {kind} {name!r}{_nearest(name, table)}; known: {sorted(table)}")
    parameters = inspect.signature(table[name]).parameters
    for option in options:
        if option not in parameters:
            raise ValueError(
                f"{kind} {name!r} has no option {option!r}{_nearest(option, parameters)}; "
                f"known: {sorted(parameters)}"
            )
    needed = [
        option
        for option, parameter in parameters.items()
        if parameter.default is parameter.empty and option not in options
    ]
    if needed:
        raise ValueError(f"{kind} {name!r} needs the option {needed[0]!r}")
    return table[name](**options)


def _nearest(word: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(word, known, 1)
    return f" (did you mean {near[0]!r}?)" if near else ""

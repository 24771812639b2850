"""Input pipeline: from files and strings to batches of numpy arrays, without JAX.

The names below are what training needs. Evaluation reads `input_pipeline.benchmarks`; contracts
and helpers are imported from their modules (`batch`, `record`, `image`, `lookup`, ...).

source = make_source("records", "train", path="captions.jsonl", image_folder="images")
tokenizer = make_tokenizer("clip", 77, path="bpe_simple_vocab_16e6.txt.gz")
transform = ImageTransform(224)
print(preview(source, tokenizer, transform))
with make_train(source, tokenizer, transform, batch_size=256, seed=0) as batches:
    for batch in batches: ...
"""

from typing import Any

from input_pipeline import lookup
from input_pipeline.hard_texts.noun_phrases import NounPhrases
from input_pipeline.hard_texts.sampling import HardTexts
from input_pipeline.hard_texts.sampling import make as make_hard_texts
from input_pipeline.hard_texts.sampling import versions as text_versions
from input_pipeline.image import NORMALISATIONS, ImageTransform
from input_pipeline.inspection import preview
from input_pipeline.loader import Loader, make_train
from input_pipeline.record import DataError, ImageLike, Record, Source
from input_pipeline.sources import SOURCES
from input_pipeline.stored_features import FeatureTransform
from input_pipeline.tokenizers import CONVERSATIONS, TOKENIZERS
from input_pipeline.tokenizers.functional_words import FunctionalWordTokenizer
from input_pipeline.tokenizers.pretrained_folder import files as tokenizer_files
from input_pipeline.tokenizers.pretrained_folder import vocabulary as folder_vocabulary
from input_pipeline.tokenizers.text_vectors import TextVectors
from input_pipeline.tokenizers.tokenize import prompt_ids, tokenize
from input_pipeline.tokenizers.tokenizer import Tokenizer

__all__ = [
    "CONVERSATIONS",
    "NORMALISATIONS",
    "SOURCES",
    "TOKENIZERS",
    "DataError",
    "FeatureTransform",
    "FunctionalWordTokenizer",
    "HardTexts",
    "ImageLike",
    "ImageTransform",
    "Loader",
    "NounPhrases",
    "Record",
    "Source",
    "TextVectors",
    "Tokenizer",
    "folder_vocabulary",
    "make_hard_texts",
    "make_source",
    "make_tokenizer",
    "make_train",
    "preview",
    "prompt_ids",
    "text_versions",
    "tokenize",
    "tokenizer_files",
]


def make_source(name: str, split: str, **options: Any) -> Source:
    """A source of records by its name in `sources.SOURCES`, with its own options.

    Raises ValueError for an unknown name, an unknown option or a value that does not fit, DataError
    for data that cannot be used.
    """
    return lookup.build("source", SOURCES, name, split=split, **options)


def make_tokenizer(name: str, context_length: int, **options: Any) -> Tokenizer | TextVectors:
    """A tokenizer by its name in `tokenizers.TOKENIZERS`, with its own options.

    "vectors" reads precomputed text vectors from a file instead.

    Raises ValueError for an unknown name, an unknown option or a file that does not fit, DataError
    for vectors that cannot be used.
    """
    return lookup.build("tokenizer", TOKENIZERS, name, context_length=context_length, **options)

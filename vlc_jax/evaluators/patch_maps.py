"""Patch-level maps (Head.patch_maps) of the cases that the report shows, one file per case.

A file is a compressed .npz with the arrays

    step        of the parameters
    pixels      uint8 (images, height, width, 3), the input of the image tower
    captions    str (captions,)
    and the arrays of Head.patch_maps with axes (images, captions, ...) instead of pairs. Maps per
    token are float16 and come with
    tokens      str (captions, length), label of each column; "" for padding
    is_word     bool (captions, length), columns of functional words, the same for every image
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vlc_jax.evaluators import Scorer
from vlc_jax.evaluators.scorer import embed_texts_once, take
from vlc_jax.input_pipeline.case import Case
from vlc_jax.input_pipeline.tokenizers import token_labels
from vlc_jax.input_pipeline.tokenizers.tokenizer import Tokenizer
from vlc_jax.types import ImageFeatures, TextFeatures

# per case; the correct ones come first
CAPTIONS = 8


def write(
    cases: Mapping[Path, Case],
    step: int,
    scorer: Scorer,
    maps: Callable[[ImageFeatures, TextFeatures], Mapping[str, Any]],
    pixels: Callable[[Any], np.ndarray],
    tokenizer: Tokenizer,
    is_writer: bool,
) -> None:
    """Writes one file per case. With several processes all compute and one writes.

    Args:
      cases: file -> case; cases without captions get no file.
      maps: (images, texts) -> maps of the pairs in row i of both.
      pixels: image -> input of the image tower.
    """
    captions = {file: captions_of(case) for file, case in cases.items()}
    captions = {file: texts for file, texts in captions.items() if texts and cases[file].images}
    if not captions:
        return
    all_texts = [text for texts in captions.values() for text in texts]
    images = scorer.embed_images([image for file in captions for image in cases[file].images])
    texts = embed_texts_once(scorer, all_texts)

    # the vocabulary is read once, and only for maps per token
    @functools.cache
    def labels() -> dict[str, list[str]]:
        return dict(zip(all_texts, token_labels.labels(tokenizer, all_texts), strict=True))

    # rows of the current case
    first_image, first_text = 0, 0
    for file, case_captions in captions.items():
        num_images, num_captions = len(cases[file].images), len(case_captions)
        image_rows = first_image + np.repeat(np.arange(num_images), num_captions)
        text_rows = first_text + np.tile(np.arange(num_captions), num_images)
        pair_maps = maps(take(images, image_rows), take(texts, text_rows))
        first_image, first_text = first_image + num_images, first_text + num_captions
        # the head has no maps
        if not pair_maps:
            return
        if is_writer:
            arrays = label_columns(pair_maps, num_images, case_captions, labels, tokenizer.words)
            arrays |= {"pixels": np.stack([pixels(x) for x in cases[file].images])}
            texts_of_case = np.array([*map(str, case_captions)])
            _save(file, {**arrays, "step": np.array(step), "captions": texts_of_case})


def captions_of(case: Case) -> tuple[str, ...]:
    """Captions of a case that the report may show, including its hard positive."""
    positive = case.meta.get("positive")
    more = () if positive is None else (positive,)
    return (*case.captions[: CAPTIONS - len(more)], *more)


def label_columns(
    pair_maps: Mapping[str, Any],
    images: int,
    captions: Sequence[str],
    labels: Callable[[], Mapping[str, Sequence[str]]],
    functional_words: Sequence[str],
) -> dict[str, np.ndarray]:
    """Maps of pairs as (images, captions, ...), with labelled token columns and no padding."""
    maps = {
        name: np.asarray(x).reshape(images, len(captions), *x.shape[1:])
        for name, x in pair_maps.items()
    }
    lengths = [x.shape[3] for x in maps.values() if x.ndim == 4]
    if not lengths:
        # small, and close to 1
        return {name: x.astype(np.float32) for name, x in maps.items()}
    tokens_of = [labels()[caption] for caption in captions]
    in_order = np.tile(np.arange(lengths[0]), (len(captions), 1))
    # index of each column's token, or -1 - k for functional word k
    columns = maps.pop("columns", in_order[None])[0]
    is_word = columns < 0
    tokens = [
        [functional_words[-c - 1] if c < 0 else row[c] if c < len(row) else "" for c in row_columns]
        for row, row_columns in zip(tokens_of, columns, strict=True)
    ]
    length = max(i + 1 for row in tokens for i, token in enumerate(row) if token)
    # float16: for display only, and there is a value per image, caption, patch and token
    maps = {name: x[..., :length].astype(np.float16) for name, x in maps.items()}
    return {**maps, "tokens": np.array(tokens)[:, :length], "is_word": is_word[:, :length]}


def _save(file: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes the file atomically."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.writing")
    # mode "x" below: never write through a link
    temporary.unlink(missing_ok=True)
    with temporary.open("xb") as opened:
        np.savez_compressed(opened, **arrays)
    temporary.replace(file)

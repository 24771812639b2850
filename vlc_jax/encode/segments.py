"""Scores by the segments of a text, without training: each finds its best part of the image.

    score = (1 - weight) x.t + weight mean_s top_r z_r.s

x and t are the embeddings of the image and of the text, s those of the segments of the text, each
encoded alone, and z_r those of the parts of the image; top is the mean of the `best` largest.

regions="patches" is after ABE-CLIP (Zhang et al. 2025, arXiv:2512.17178): phrases of an object and
its attributes are refined and meet their most related patches, beside the global score. Its
equations were not at hand: that a phrase is encoded alone, the mean and the weight are ours.

regions="crops" is after "Adding simple structure at inference improves Vision-Language
Compositionality" (Miranda et al. 2025, arXiv:2506.09691): the image tower encodes crops of several
sizes, segments are objects with their attributes and relations, and the score is the mean over
segments of the best crop (its figure 1), so the weight is 1. Sizes and rules are ours.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Float

from vlc_jax.errors import usage_errors
from vlc_jax.evaluators import Scorer
from vlc_jax.evaluators.scorer import Segments
from vlc_jax.evaluators.vectors import unit
from vlc_jax.input_pipeline.hard_texts import bindings
from vlc_jax.input_pipeline.hard_texts.generator import Tagged
from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.record import Caption, ImageLike
from vlc_jax.types import ImageFeatures, TextFeatures

_IMAGES = 32  # whose crops are in memory at a time
# no thing in the image: "a photo of a dog"
_OF_PICTURE = ("photo", "photograph", "picture", "image")


def find(caption: str, tagged: Tagged, relations: bool) -> list[str]:
    """The segments of a caption, each once: its noun phrases, and with `relations` two phrases with
    the preposition or verb between them, "a dog on a chair"."""
    phrases = [
        (start, stop)
        for start, noun, stop in bindings.phrases(tagged)
        if tagged.tokens[noun].text.lower() not in _OF_PICTURE
    ]
    spans = list(phrases)
    if relations:
        spans += [
            (first[0], second[1])
            for first, second in itertools.pairwise(phrases)
            if bindings.relation(tagged.tokens[first[1] : second[0]])
        ]
    tokens = tagged.tokens
    found = (caption[tokens[start].start : tokens[stop - 1].stop] for start, stop in spans)
    return list(dict.fromkeys(found))


def texts(of: Sequence[Caption], how: Segments) -> list[str]:
    """The different segments of texts. Raises UsageError for an unknown or missing tagger,
    DataError for a text that the tagger cannot tag."""
    tagger = _tagger(how)
    found = (find(text, tagger(text), how.relations) for text in dict.fromkeys(map(str, of)))
    return list(dict.fromkeys(itertools.chain.from_iterable(found)))


def _tagger(how: Segments) -> Callable[[str], Tagged]:
    with usage_errors():
        return bindings.make_tagger(how.tagger)


def crops(image: ImageLike, grids: Sequence[int]) -> Iterator[np.ndarray]:
    """Crops of an image, uint8 pixels: of each n in `grids` n x n windows of 2 / (n + 1) of its
    height and width, which overlap by half; the whole image for n = 1."""
    picture = image_ops.open_rgb(image)
    for n in grids:
        for row, column in np.ndindex(n, n):
            box = np.array([column, row, column + 2, row + 2]) / (n + 1)
            pixels = np.round(box * np.tile(picture.size, 2)).astype(int)
            # at least one pixel of a narrow image
            pixels[2:] = np.maximum(pixels[2:], pixels[:2] + 1)
            yield np.asarray(picture.crop(tuple(pixels.tolist())))


def scoring(scorer: Scorer, how: Segments) -> Scorer:
    """A Scorer with scores by segments; a text without any keeps its score bit for bit.

    `tokens` of its features are the parts of an image, or the segments of a text, which `mask`
    tells from padding; those of all images of a call are in memory.

    scorer: its scores are dot products of two embeddings.
    """
    tagger = _tagger(how)
    segments_of = functools.cache(lambda text: find(text, tagger(text), how.relations))

    def parts(images: Sequence[ImageLike]) -> Float[np.ndarray, "images parts embed"]:
        if how.regions == "patches":
            return scorer.image_tokens(images).tokens
        cut = [crop for image in images for crop in crops(image, how.grids)]
        rows = scorer.embed_images(cut).pooled
        return rows.reshape(len(images), -1, rows.shape[1])

    def embed_images(images: Sequence[ImageLike]) -> ImageFeatures:
        found = [parts(images[k : k + _IMAGES]) for k in range(0, len(images), _IMAGES)]
        return ImageFeatures(scorer.embed_images(images).pooled, np.concatenate(found))

    def embed_texts(captions: Sequence[Caption]) -> TextFeatures:
        pooled = scorer.embed_texts(captions).pooled
        own = [segments_of(str(caption)) for caption in captions]
        row_of = {text: row for row, text in enumerate(dict.fromkeys(itertools.chain(*own)))}
        shape = len(captions), max(1, *map(len, own))
        tokens, mask = np.zeros((*shape, pooled.shape[1]), np.float32), np.zeros(shape, bool)
        for row, segments in enumerate(own):
            mask[row, : len(segments)] = True
        if row_of:
            vectors = scorer.embed_texts(list(row_of)).pooled
            tokens[mask] = vectors[[row_of[text] for text in itertools.chain(*own)]]
        return TextFeatures(pooled, tokens, mask)

    def mixed(whole: np.ndarray, part_scores: np.ndarray, mask: np.ndarray) -> np.ndarray:
        sums = (1 - how.weight) * whole + how.weight * part_scores
        return np.where(mask.any(axis=-1), sums, whole).astype(np.float32)

    def score(image: ImageFeatures, text: TextFeatures) -> Float[np.ndarray, "images texts"]:
        whole = scorer.score(ImageFeatures(image.pooled), TextFeatures(text.pooled))
        segments = unit(text.tokens)
        part_scores = [similarity(part, segments, text.mask, how.best) for part in image.tokens]
        return mixed(whole, np.stack(part_scores), text.mask[None])

    def score_options(image: ImageFeatures, text: TextFeatures) -> Float[np.ndarray, "_ options"]:
        whole = scorer.score_options(ImageFeatures(image.pooled), TextFeatures(text.pooled))
        tokens, mask = (x.reshape(*whole.shape, *x.shape[1:]) for x in (text.tokens, text.mask))
        part_scores = [
            similarity(part, unit(own), real, how.best)
            for part, own, real in zip(image.tokens, tokens, mask, strict=True)
        ]
        return mixed(whole, np.stack(part_scores), mask)

    functions = embed_images, embed_texts, score, score_options
    return Scorer(*functions, scorer.image_tokens, scorer.text_tokens)


def similarity(
    parts: Float[np.ndarray, "parts embed"],
    segments: Float[np.ndarray, "texts length embed"],
    mask: Bool[np.ndarray, "texts length"],
    best: int,
) -> Float[np.ndarray, " texts"]:
    """Mean over the segments of each text of the mean of its `best` largest cosines with parts.

    segments: of unit length. float64, so that equal texts tie in float32 wherever they stand; 0 for
    a text without segments.
    """
    cosines = unit(parts) @ segments.reshape(-1, segments.shape[-1]).T
    best = min(best, len(cosines))
    top = np.partition(cosines, len(cosines) - best, axis=0)[-best:].mean(axis=0)
    return np.where(mask, top.reshape(mask.shape), 0).sum(axis=1) / np.maximum(mask.sum(axis=1), 1)

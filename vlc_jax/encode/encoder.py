"""Encoder of evaluation and inference: images and texts to features, features to scores.

Benchmarks share images (REPLACE, SWAP and ARO use Visual Genome) and captions. With `once`, each
distinct image and text is encoded once per set of parameters: features are cached by content
(`image_key`, `text_key`), in memory and optionally in files for later runs.

On a CPU in float32 the scores of the dot product and of LABCLIP do not depend, to the last bit, on
config.eval.batch_size, on the number of simulated devices (unsharded parameters), on the order of
cases, or on the other benchmarks. XLA's matrix products round a row identically at every position,
but not in arrays of another height; so all arrays on a CPU have one height (ROWS_ON_CPU on each
device, and the blocks of scores). Another machine, number of threads or version of JAX may round
differently. Accelerators use config.eval.batch_size unchanged.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import linen as nn

from vlc_jax.devices import runtime, sharding
from vlc_jax.encode import answers, segments
from vlc_jax.encode.batches import BatchEncoder, Lengths, Rows, compiled, text_lengths
from vlc_jax.encode.feature_cache import THREADS, FeatureCache, Kept, make_folder
from vlc_jax.encode.interrupt import NEVER, Interrupt
from vlc_jax.encode.progress import Progress
from vlc_jax.encode.score_blocks import (
    Score,
    on_short_texts,
    score_in_blocks,
    score_options_in_blocks,
    sharing_prefixes,
)
from vlc_jax.errors import UsageError
from vlc_jax.evaluators import Decoding, Scorer
from vlc_jax.evaluators.scorer import Segments
from vlc_jax.input_pipeline.benchmarks import Benchmark
from vlc_jax.input_pipeline.images import native, transforms
from vlc_jax.input_pipeline.images.image_key import KEY_BYTES, ImageKeys
from vlc_jax.input_pipeline.loader import questions
from vlc_jax.input_pipeline.record import Caption, ImageLike
from vlc_jax.input_pipeline.tokenizers.tokenizer import tokenize
from vlc_jax.models.parameters import require_finite
from vlc_jax.run import workdir_files
from vlc_jax.types import ImageFeatures, TextFeatures
from vlc_jax.types.setup import Setup

# Per device and forward pass; 256 save 15 % of the CPU time of the mini model.
ROWS_ON_CPU = 32
# Images, and texts, of a block of scores of pooled features.
SCORE_BLOCK = 512
# Pairs of pooled features scored at a time.
PAIR_BLOCK = 1024
# Images, each with its texts, that a head scores at a time.
HEAD_BLOCK = 64
# Pixel rows of mosaics (Qwen3-VL) up to which all rows of a batch are read at a time: 1,360 patches
# of 16 x 16 pixels for the published size, a photo of 640 x 480 pixels.
COLUMNS = 257


def pair_scores(setup: Setup) -> Callable[[Any, Mapping[str, jax.Array]], jax.Array]:
    """A function (params, rows) -> scores of image i with text i, (batch, 1).

    rows: `image`, `text` and optionally `question` and `text_marks`.
    """

    def score(model: nn.Module, rows: Mapping[str, jax.Array]) -> jax.Array:
        image = model.encode_image(setup.normalise(rows["image"]), rows.get("question"))
        text = model.encode_text(rows["text"], rows.get("text_marks"))
        return model.score_options(image, text)

    return lambda params, rows: nn.apply(score, setup.model)({"params": params}, rows)


class Encoder:
    """Towers and scores of a model, compiled.

    images, texts: BatchEncoders of the features that the head scores.
    image_tokens, text_tokens: BatchEncoders of the towers alone, with all tokens but the class
      token in the shared embedding; no text_tokens if texts are precomputed vectors.
    score, score_options, patch_maps: functions of (variables, image, text).
    progress: counts images, texts, scores and answers (encode/progress.py).

    Args:
      setup: of the run.
      interrupt: as in BatchEncoder.
      once: encode every distinct image and text once, each text at the length that it needs, and
        score in blocks of one shape.
      is_writer: whether this process writes the files of features (with `once`).
      unfinished: folder that keeps the features of an evaluation until `forget`, if
        config.eval.cache is None; None: no files.

    Raises UsageError if config.eval.cache cannot be written.
    """

    def __init__(
        self,
        setup: Setup,
        interrupt: Interrupt = NEVER,
        *,
        once: bool = False,
        is_writer: bool = True,
        unfinished: Path | None = None,
    ):
        self._setup, self._once, self._interrupt = setup, once, interrupt
        self.progress = Progress()
        self.transform = setup.evaluation.transform
        self._questions = partial(
            questions.image_questions, setup.tokenizer, setup.evaluation.question
        )
        groups, rows = sharding.row_groups(setup.mesh), setup.evaluation.batch_size
        if once and runtime.is_cpu():
            rows = ROWS_ON_CPU * groups
        setup = setup._replace(evaluation=setup.evaluation._replace(batch_size=rows))
        batched = partial(BatchEncoder, interrupt=interrupt)
        read_texts = partial(tokenize, setup.tokenizer)
        image_cache = text_cache = heights = None
        if self.transform.crop == transforms.NATIVE:
            heights = Lengths(lambda rows: native.heights(rows["image"]), COLUMNS)
        if once:
            kept = self._kept(is_writer, unfinished)
            options = {"kept": kept, "interrupt": interrupt}
            image_cache, text_cache = _caches(setup, rows // groups, self.progress, **options)
        count = partial(partial, self.progress.count)
        image = {"lengths": heights, "cache": image_cache, "count": count("images")}
        self.images = batched(setup, self._encode_image, self._pixels, **image)
        lengths = text_lengths(setup, is_mixed=not once)
        text = {"lengths": lengths, "cache": text_cache, "count": count("texts")}
        self.texts = batched(setup, self._encode_text, read_texts, **text)
        # without caches: tokens of whole benchmarks exceed the memory
        towers = setup._replace(model=setup.model.with_tokens)
        self.image_tokens = batched(towers, self._encode_patches, self._pixels)
        self.text_tokens = None
        if not setup.tokenizer.width:
            self.text_tokens = batched(
                towers, lambda m, rows: m.encode_text(rows["text"]), read_texts
            )
        self.score = compiled(setup, lambda m, image, text: m.score(image, text))
        self.score_options = compiled(setup, lambda m, image, text: m.score_options(image, text))
        self.patch_maps = compiled(setup, lambda m, image, text: m.patch_maps(image, text))
        self._prompt = answers.prompt(setup)
        self._answers = answers.Answers(setup) if answers.can_answer(setup) else None

    def scorer(self, variables: Any) -> Scorer:
        """The model with these variables, for the evaluators.

        The cache of a tower survives as long as its parameters do not change (a frozen tower).
        Raises DivergedError for parameters that are not finite.
        """
        require_finite(variables["params"])
        # only the returned Scorer references the variables: training must not hold a second copy
        encoders = (self.images, self.texts, self.image_tokens, self.text_tokens)
        images, texts, *tokens = (encode and partial(encode, variables) for encode in encoders)
        score, score_options = (
            _on_host(function, variables) for function in (self.score, self.score_options)
        )
        is_cosine = all(self._setup.model.head.reads_pooled)
        if not self._once:
            plain = Scorer(images, texts, score, score_options, *tokens, is_cosine=is_cosine)
            return self._with_segments(plain) if is_cosine else plain
        for encode in (self.images, self.texts):
            encode.cache.use(variables)
        head = self._setup.model.head
        if is_cosine:
            score = partial(score_in_blocks, score, height=SCORE_BLOCK, width=SCORE_BLOCK)
            pair_options = partial(_score_pairs, score_options)
            plain = Scorer(images, texts, score, pair_options, *tokens, is_cosine=True)
            return self._with_segments(plain)
        # heads, which take longer than the towers; the blocks above have copies, and take no time
        score, score_options = self._counted(score), self._counted(score_options)
        if head.requests[1].tokens != "ids":
            # `score` without blocks: DCSM standardises over all pairs that are scored together
            in_blocks = partial(score_options_in_blocks, score_options, rows=HEAD_BLOCK)
            return Scorer(images, texts, score, in_blocks, *tokens)

        def answer(image: ImageFeatures, asked: Sequence[str], how: Decoding) -> list[str]:
            count = partial(self.progress.count, "answers")
            return self._answers(variables, image, asked, how, _block(len(asked)), count)

        own_texts = partial(_score_own_texts, score_options, reads_shared=head.reads_shared)
        return Scorer(
            images,
            texts,
            on_short_texts(score),
            on_short_texts(own_texts),
            *tokens,
            answers=answer if self._answers else None,
            prompt=self._prompt,
        )

    def _with_segments(self, scorer: Scorer) -> Scorer:
        """The model with scores by segments, too."""

        def by_segments(how: Segments) -> Scorer:
            # a head with a width of its own projects its pooled features, and not the patches
            if how.regions == "patches" and self._setup.model.head.embed is not None:
                raise UsageError(
                    "segments='patches' compares phrases with the image tower's patches, which "
                    "this model leaves in another space than its texts: take segments='crops'"
                )
            return segments.scoring(scorer, how)

        return scorer._replace(by_segments=by_segments)

    def prepare(self, variables: Any, benchmark: Benchmark) -> None:
        """Encodes a benchmark's images and texts ahead, in full batches.

        Its protocol requests only a few at a time. Token features are too large for this.
        variables: of the last `scorer`.
        """
        images = [image for case in benchmark.cases for image in case.images]
        for encode, items in ((self.images, images), (self.texts, benchmark.texts)):
            if not encode.cache.is_bounded:
                encode.cache.prepare(items, partial(encode.batches, variables))

    def save(self) -> None:
        """Writes the features of a stopped evaluation, which are not all in files yet."""
        for encode in (self.images, self.texts):
            encode.cache.save()

    def forget(self) -> None:
        """Removes the files of features of a finished evaluation, unless config.eval.cache keeps
        them.
        """
        for encode in (self.images, self.texts):
            encode.cache.forget()

    def _counted(self, score: Score) -> Score:
        """`score`, interrupted by a signal and counted by `progress`."""

        def call(image: ImageFeatures, text: TextFeatures) -> np.ndarray:
            self._interrupt.check()
            scores = score(image, text)
            self.progress.count("scores", scores.size)
            return scores

        return call

    def _kept(self, is_writer: bool, unfinished: Path | None) -> Kept:
        """Folder of the caches, whether it outlives the evaluation, and its writer."""
        cache = self._setup.evaluation.cache
        folder = Path(cache) if cache else None
        if folder and is_writer:
            make_folder(folder)
        if cache is None and unfinished is not None:
            folder = workdir_files.without_link(unfinished) if is_writer else unfinished
        return Kept(folder, is_writer, is_lasting=bool(cache))

    @property
    def facts(self) -> dict[str, Any]:
        """Facts that the features of both towers depend on, as JSON.

        Weights of the last `scorer`, tower, pixels, normalisation, tokenizer and devices.
        """
        facts = {"image": self.images.cache.facts, "text": self.texts.cache.facts}
        return json.loads(json.dumps(facts, default=str))

    def _encode_image(self, model: nn.Module, rows: Mapping[str, jax.Array]) -> ImageFeatures:
        return model.encode_image(self._setup.normalise(rows["image"]), rows.get("question"))

    def _encode_text(self, model: nn.Module, rows: Mapping[str, jax.Array]) -> TextFeatures:
        features = model.encode_text(rows["text"], rows.get("text_marks"))
        # without the mask, whose columns vary with the text length; such heads do not read it
        return TextFeatures(features.pooled) if self._setup.model.head.reads_pooled[1] else features

    def _encode_patches(self, model: nn.Module, rows: Mapping[str, jax.Array]) -> ImageFeatures:
        features = model.encode_image(self._setup.normalise(rows["image"]))
        # without the class token, which is no patch
        first = int(self._setup.model.image.has_class_token)
        return features._replace(tokens=features.tokens[:, first:])

    def _pixels(self, images: Sequence[ImageLike]) -> Rows:
        with ThreadPoolExecutor(max_workers=THREADS) as pool:
            pixels = pool.map(lambda image: self.transform(image, None), images)
            return {"image": np.stack(list(pixels))} | self._questions(images)


def _on_host(function: Callable[..., Any], variables: Any) -> Score:
    return lambda image, text: np.asarray(function(variables, image, text))


def _score_pairs(score_options: Score, image: ImageFeatures, text: TextFeatures) -> np.ndarray:
    # as pairs, so that the rounding of a score does not depend on the number of options
    number = len(text.pooled) // len(image.pooled)
    pairs = ImageFeatures(np.repeat(image.pooled, number, axis=0))
    scores = score_options_in_blocks(score_options, pairs, text, PAIR_BLOCK)
    return scores.reshape(-1, number)


def _score_own_texts(
    score_options: Score, image: ImageFeatures, text: TextFeatures, *, reads_shared: bool
) -> np.ndarray:
    block_score = sharing_prefixes(score_options, image, text) if reads_shared else score_options
    return score_options_in_blocks(block_score, image, text, _block(len(image.pooled)))


def _block(count: int) -> int:
    """Number of images that a decoder reads at a time, of `count`.

    The next power of two from 8 to HEAD_BLOCK: a padded block costs as much as a full one.
    """
    return min(HEAD_BLOCK, max(8, 1 << (count - 1).bit_length()))


def _caches(
    setup: Setup, rows: int, progress: Progress, **options: Any
) -> tuple[FeatureCache, FeatureCache]:
    """The caches of the image and the text tower; rows: of a forward pass on each device."""
    hardware = runtime.hardware()
    # rows, devices and jax: rounding depends on the height of arrays, the hardware and XLA
    common = {
        "head": repr(setup.model.head),
        "rows": rows,
        "devices": [*hardware["devices"], hardware["cpu"] if runtime.is_cpu() else ""],
        "jax": jax.__version__,
    }
    image_facts = {
        "tower": repr(setup.model.image),
        "pixels": repr(setup.evaluation.transform),
        **setup.evaluation.inputs["image"],
    }
    text_facts = {
        "tower": repr(setup.model.text),
        "tokenizer": setup.tokenizer.fingerprint,
        **setup.evaluation.inputs["text"],
    }
    image, text = setup.model.head.reads_pooled
    cache = partial(FeatureCache, **options)
    images, texts = (partial(progress.expect, kind) for kind in ("images", "texts"))
    return (
        cache("image", ImageKeys(), common | image_facts, is_pooled=image, expect=images),
        cache("text", text_key, common | text_facts, is_pooled=text, expect=texts),
    )


def text_key(text: Caption) -> bytes:
    """Key of a text."""
    # else the caption "[[...]]" and the conversation that files write so would share a key
    text = text if isinstance(text, str) else f"conversation {text}"
    # texts of a table may have lone surrogates, which UTF-8 refuses
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:KEY_BYTES]

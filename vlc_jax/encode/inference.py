"""Inference with a trained model: `vlc_jax.load(PATH)` embeds and scores images and texts.

Towers, preprocessing and scores are the same as in evaluation (`encode.encoder.Encoder`).
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image

from vlc_jax.encode import text_encoders
from vlc_jax.encode.answers import Answers
from vlc_jax.encode.encoder import Encoder
from vlc_jax.encode.score_blocks import on_short_texts, score_in_blocks
from vlc_jax.errors import UsageError
from vlc_jax.evaluators import Decoding, Scorer
from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.loader.questions import SLOT
from vlc_jax.input_pipeline.record import Caption, ImageLike, ImageQuestion
from vlc_jax.input_pipeline.stores import open_clip_names
from vlc_jax.input_pipeline.tokenizers.decoder import TextStream
from vlc_jax.run.workdir import is_workdir, saved_config
from vlc_jax.setup import addresses, init_from, resolve
from vlc_jax.setup.weights_config import config_of_weights
from vlc_jax.types.setup import Setup

# Rows of a block of scores of pooled features (a matrix product).
_POOLED_BLOCK = 1024
# Batches of images, and of texts, whose token features are in memory at a time.
_KEPT_BATCHES = 8

# A path, encoded bytes, a uint8 array (height, width, 3) or a PIL image; an ImageQuestion is one of
# them with a question, for a model that reads it.
T = TypeVar("T")
AnyImage = str | os.PathLike | Image.Image | ImageLike


def load(
    path: str | os.PathLike[str],
    *,
    pretrained: str | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
    family: str | None = None,
    variant: str | None = None,
    image_size: int | None = None,
    activation: str | None = None,
    batch_size: int = 64,
) -> "Model":
    """Loads a model.

        model = vlc_jax.load("runs/clip")
        model.score(["a.jpg", "b.jpg"], ["a red circle", "a blue square"])

    path: the workdir of a run (its latest checkpoint), a folder of vlc_jax.tools.export, or weights
      of OpenAI, open_clip, Hugging Face or big_vision; on a disk or at an address (gs://...,
      hf://OWNER/NAME); with `pretrained`, a model name of open_clip ("ViT-B-32").
    pretrained: tag of open_clip's published weights ("openai").
    batch_size: images or texts per forward pass, over all devices.
    tokenizer, family, variant, image_size, activation: for weights only, whose files may not
      contain them (`setup.weights_config.config_of_weights`); a run has them in its config.
    Raises UsageError, WeightsError, CheckpointError, DataError.
    """
    if pretrained is not None:
        path = f"open_clip://{os.fspath(path)}/{pretrained}"
    path = addresses.copy_of("path", path)
    options = {
        "tokenizer": str(addresses.copy_of("tokenizer", tokenizer)) if tokenizer else None,
        "family": family,
        "variant": variant,
        "image_size": image_size,
        "activation": activation,
    }
    if not path.exists():
        tags = open_clip_names.tags_of(str(path))
        hint = f"; published weights of this name are pretrained={', '.join(tags)}" if tags else ""
        raise UsageError(f"there is no workdir and there are no weights at {path}{hint}")
    if batch_size < 1:
        raise UsageError(f"batch_size is at least 1; got {batch_size}")
    if is_workdir(path):
        if listed := ", ".join(name for name, value in options.items() if value is not None):
            raise UsageError(f"{path} is a run, whose config sets {listed}: leave {listed} out")
        setup = resolve(saved_config(path), "weights")
        text_encoders.encode_others(setup.tokenizer)
        return Model(setup, init_from.load_latest(setup, path).variables, batch_size)
    setup = resolve(config_of_weights(path, **options), "weights")
    params = init_from.load_complete(setup)
    return Model(setup, {"params": params, "batch_stats": {}}, batch_size)


class Model:
    """A trained model: images and texts in, float32 numpy arrays out, batched over all devices.

    config: of its run, as a plain dict.
    logit_scale, logit_bias: logits = logit_scale * scores + logit_bias; the bias is None for a
      model without one (CLIP).
    """

    def __init__(self, setup: Setup, variables: Mapping[str, Any], batch_size: int = 64):
        self.config: Mapping[str, Any] = setup.config
        self.logit_scale = float(np.exp(variables["params"]["logit_scale"]))
        bias = variables["params"].get("logit_bias")
        self.logit_bias = None if bias is None else float(bias)
        self._setup, self._variables, self._batch_size = setup, variables, batch_size
        self._scorers: dict[int, Scorer] = {}

    def embed_images(self, images: Sequence[AnyImage]) -> Float[np.ndarray, "images embed"]:
        """Embeddings of unit length. Raises DataError, with its name, for an unreadable image."""
        return self._pooled(_images(images), "embed_images")

    def pixels(self, image: AnyImage) -> UInt8[np.ndarray, "height width 3"]:
        """The cropped and resized pixels of an image, not normalised; `embed_images` accepts them.

        Raises DataError for an unreadable image.
        """
        return np.asarray(self._setup.evaluation.transform(_image(image), None))

    def embed_texts(self, texts: Sequence[Caption]) -> Float[np.ndarray, "texts embed"]:
        """Embeddings of unit length."""
        return self._pooled(self._encodable(texts), "embed_texts")

    def score(
        self, images: Sequence[AnyImage], texts: Sequence[Caption]
    ) -> Float[np.ndarray, "images texts"]:
        """Scores of every image with every text, before `logit_scale` and `logit_bias`.

        A score is the cosine similarity, or the score of the model's head (PACL, DCSM, SPARC).
        Scores are computed in blocks of one shape, with a side of 1, 8 or `batch_size` rows (1,024
        without a head). So a call compiles one shape at most, and calls of similar size share it.
        For a head, tokens of eight batches of images and of texts are in memory at a time; more
        texts than that are embedded again for the next images.
        """
        inputs, texts = _images(images), self._encodable(texts)
        scores = np.zeros((len(inputs), len(texts)), np.float32)
        if not scores.size:
            return scores
        has_head = self._setup.model.has_head
        in_memory = _KEPT_BATCHES * self._batch_size if has_head else max(scores.shape)
        largest = self._batch_size if has_head else _POOLED_BLOCK
        # by the size of the whole call, so that its last blocks have the shape of the first ones
        shape = [_block(count, largest) for count in scores.shape]
        of_images, of_texts = self._scorer(len(inputs)), self._scorer(len(texts))
        score, text = self._scorer(self._batch_size).score, None
        in_blocks = partial(score_in_blocks, score, height=shape[0], width=shape[1])
        if self._setup.model.head.requests[1].tokens == "ids":
            in_blocks = on_short_texts(in_blocks)
        for top in range(0, len(inputs), in_memory):
            image = of_images.embed_images(inputs[top : top + in_memory])
            for left in range(0, len(texts), in_memory):
                if text is None or len(texts) > in_memory:
                    text = of_texts.embed_texts(texts[left : left + in_memory])
                part = scores[top : top + in_memory, left : left + in_memory]
                part[:] = in_blocks(image, text)
        return scores

    def answers(
        self, images: Sequence[AnyImage], questions: Sequence[str], **decoding: Any
    ) -> list[str]:
        """Answers to question i about image i, by a model that writes text (LLaVA, a captioner).

        The question "" asks for a description of the image. If config.input.question is set, the
        question is attached to the image.
        decoding: fields of evaluators.Decoding: kind (greedy or m3id), max_tokens and M3ID's
          parameters. Raises UsageError for a model that writes no text.
        """
        writer, how = self._writer, Decoding(**decoding)
        inputs, questions = _images(images), _texts(questions)
        if len(inputs) != len(questions):
            raise UsageError(f"{len(inputs)} images and {len(questions)} questions: one of each")
        pairs = [self._with_question(*pair) for pair in zip(inputs, questions, strict=True)]
        inputs, questions = [image for image, _ in pairs], [question for _, question in pairs]
        answers, size = list[str](), self._batch_size
        for start in range(0, len(inputs), size):
            part = slice(start, start + size)
            image = self._scorer(len(inputs)).embed_images(inputs[part])
            rows = min(size, 1 << max(len(inputs) - 1, 0).bit_length())
            answers += writer(self._variables, image, questions[part], how, rows)
        return answers

    def stream(self, image: AnyImage, question: str = "", **decoding: Any) -> Iterator[str]:
        """Yields the answer of `answers` about one image in pieces, as they are decoded."""
        source, question = self._with_question(_image(image), question)
        features = self._scorer(1).embed_images([source])
        text = TextStream(self._writer.tokenizer)
        for token in self._writer.stream(self._variables, features, question, Decoding(**decoding)):
            if piece := text(token):
                yield piece

    def _with_question(self, image: ImageLike, question: str) -> tuple[ImageLike, str]:
        """(image, question); if config.input.question has a slot, the image gets the question."""
        has_slot = SLOT in self._setup.evaluation.question
        if has_slot and not isinstance(image, ImageQuestion):
            return ImageQuestion(image, question), ""
        return image, question

    @cached_property
    def _writer(self) -> Answers:
        return Answers(self._setup)

    def _encodable(self, texts: Sequence[Caption]) -> list[Caption]:
        """The texts; with precomputed text vectors, vectors of missing texts are computed first."""
        texts = _texts(texts)
        # forget: a model that is loaded for days must not keep every text
        self._setup.tokenizer.require(texts, forget=True)
        return texts

    def _pooled(self, items: Sequence[Any], method: str) -> np.ndarray:
        """Pooled features of all items by a method of Scorer."""
        rows, size = np.zeros((len(items), self._setup.model.embed), np.float32), self._batch_size
        # a batch at a time: token features, which are 100 times as large, are not kept
        for start in range(0, len(items), size):
            embed = getattr(self._scorer(len(items)), method)
            rows[start : start + size] = embed(items[start : start + size]).pooled
        return rows

    @property
    def scores_are_cosines(self) -> bool:
        """True if a score is the dot product of two embeddings; False if a head scores tokens."""
        return all(self._setup.model.head.reads_pooled)

    @property
    def fingerprint(self) -> str:
        """Hash of weights, preprocessing and tokenizer, on which embeddings depend."""
        setup, config = self._setup, self.config
        # not the whole config: learning rate and data do not change embeddings
        facts = [
            config["model"],
            config["input"]["normalisation"],
            repr(setup.evaluation.transform),
            setup.tokenizer.fingerprint,
            init_from.digest(self._variables["params"]),
        ]
        text = json.dumps(facts, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def _scorer(self, count: int) -> Scorer:
        """The scorer with the next power of two from `count` as batch size.

        So one image does not cost a whole batch, and few shapes are compiled.
        """
        size = min(self._batch_size, 1 << max(count - 1, 0).bit_length())
        if size not in self._scorers:
            evaluation = self._setup.evaluation._replace(batch_size=size)
            encoder = Encoder(self._setup._replace(evaluation=evaluation))
            self._scorers[size] = encoder.scorer(self._variables)
        return self._scorers[size]

    def __repr__(self) -> str:
        model = self.config["model"]
        return f"<vlc_jax.encode.inference.Model {model['name']} {model['variant']}>"


def _block(count: int, largest: int) -> int:
    """Side of the blocks in which `count` rows are scored."""
    return next((size for size in (1, 8) if count <= size), largest)


def _images(images: Sequence[AnyImage]) -> list[ImageLike]:
    if isinstance(images, str | bytes | os.PathLike | Image.Image):
        raise UsageError(f"images are a list, even of one; got {type(images).__name__}")
    return [_image(image) for image in images]


def _image(image: AnyImage) -> ImageLike:
    if isinstance(image, ImageQuestion):
        return ImageQuestion(_image(image.image), image.question)
    if isinstance(image, Image.Image):
        # rotated by EXIF, with 16 bits: as an image from a file
        return np.asarray(image_ops.open_rgb(image))
    return Path(image) if isinstance(image, str | os.PathLike) else image


def _texts(texts: Sequence[T]) -> list[T]:
    if isinstance(texts, str):
        raise UsageError("texts are a list, even of one; got str")
    return list(texts)

"""Inference with a trained model of `vlc_jax.load(PATH)`: embeds and scores images and texts.

Towers, preprocessing and scores are the same as in evaluation (`encode.encoder.Encoder`).
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int, UInt8

from vlc_jax import evaluators
from vlc_jax.encode.answers import Answers
from vlc_jax.encode.batches import compiled
from vlc_jax.encode.calibrated import Calibrated
from vlc_jax.encode.encoder import Encoder
from vlc_jax.encode.inputs import (
    AnyImage,
    as_image,
    as_images,
    as_texts,
    check_arrays,
    check_one_of_each,
    check_pairs,
    check_params,
    with_question,
)
from vlc_jax.encode.score_blocks import on_short_texts, score_in_blocks, score_options_in_blocks
from vlc_jax.errors import UsageError, usage_errors
from vlc_jax.evaluators import Decoding, Scorer, stats, zeroshot
from vlc_jax.evaluators import negation as negations
from vlc_jax.evaluators.scorer import take
from vlc_jax.input_pipeline.case import Benchmark
from vlc_jax.input_pipeline.record import Caption, trimmed
from vlc_jax.input_pipeline.sources import prompt_texts
from vlc_jax.input_pipeline.tokenizers.decoder import TextStream
from vlc_jax.input_pipeline.tokenizers.tokenizer import Tokenizer
from vlc_jax.models.tower import image_shape
from vlc_jax.setup import exported_config, init_from, saved_model
from vlc_jax.types import ImageFeatures, Outputs, TextFeatures
from vlc_jax.types.setup import Setup

# Rows of a block of scores of pooled features (a matrix product).
_POOLED_BLOCK = 1024
# Batches of images, and of texts, whose token features are in memory at a time.
_KEPT_BATCHES = 8

# Pixels for the pure functions: uint8, or float from 0 to 255, of which a gradient can be taken.
Pixels = (
    UInt8[Array | np.ndarray, "images height width 3"]
    | Float[Array | np.ndarray, "images height width 3"]
)
# What `Model.tokenizer` returns: token ids, or vectors of texts.
Ids = Int[Array | np.ndarray, "texts length"] | Float[Array | np.ndarray, "texts width"]


class Model(Calibrated):
    """A trained model: images and texts in, float32 numpy arrays out, batched over all devices.

    `apply`, `encode_image` and `encode_text` are pure functions of parameters, pixels and token
    ids, for jax.jit and jax.grad; `params`, `preprocess` and `tokenizer` give their arguments. All
    other methods raise DivergedError for parameters, embeddings and scores that are not finite.

    config: of its run, as a plain dict.   folder: of its files, for its calibration.
    logit_scale, logit_bias: logits = logit_scale * scores + logit_bias; the bias is None for a
      model without one (CLIP).
    """

    def __init__(
        self,
        setup: Setup,
        variables: Mapping[str, Any],
        batch_size: int = 64,
        folder: Path | None = None,
    ):
        super().__init__(folder)
        self.config: Mapping[str, Any] = setup.config
        self.logit_scale = float(np.exp(variables["params"]["logit_scale"]))
        bias = variables["params"].get("logit_bias")
        self.logit_bias = None if bias is None else float(bias)
        self._setup, self._variables, self._batch_size = setup, variables, batch_size
        self._scorers: dict[int, Scorer] = {}

    def embed_images(self, images: Sequence[AnyImage]) -> Float[np.ndarray, "images embed"]:
        """Embeddings of unit length. Raises DataError, with its name, for an unreadable image."""
        return self._pooled(as_images(images), "embed_images")

    def pixels(self, image: AnyImage) -> UInt8[np.ndarray, "height width 3"]:
        """The cropped and resized pixels of an image, not normalised, of NaFlex its patches as a
        mosaic (input_pipeline/images/naflex.py); `embed_images` accepts them.

        Raises DataError for an unreadable image.
        """
        return np.asarray(self._setup.evaluation.transform(as_image(image), None))

    def preprocess(self, images: Sequence[AnyImage]) -> UInt8[np.ndarray, "images height width 3"]:
        """`pixels` of all images, for the pure functions; raises DataError as `pixels` does."""
        rows = [self.pixels(image) for image in as_images(images)]
        shape = image_shape(self._setup.model.image)
        return np.stack(rows) if rows else np.zeros((0, *shape), np.uint8)

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer: a list of texts -> int32 ids (texts, length), padded and cut.

        `tokenizer.decode` is the way back, if there is one. For precomputed text vectors it gives
        float32 (texts, width).
        """
        return self._setup.tokenizer

    @property
    def params(self) -> Any:
        """The parameters, a tree of JAX arrays; the pure functions take it or one like it."""
        return self._variables["params"]

    def with_params(self, params: Any) -> "Model":
        """The model with other parameters, such as those of a training loop.

        Raises UsageError unless they have the names and shapes of `params`.
        """
        check_params(self.params, params)
        return Model(self._setup, {**self._variables, "params": params}, self._batch_size)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes a new folder with parameters, preprocessing, tokenizer and calibration, which
        `load`, `vlc-jax export` and all commands read as the workdir of a run.

            model.with_params(params).save("runs/mine")

        The folder may be moved. Raises UsageError if it exists and is not empty.
        """
        with saved_model.writing(self._setup, self._variables, folder) as partial:
            if self.calibration is not None:
                self.calibration.write(partial)

    def apply(
        self,
        params: Any,
        images: Pixels,
        ids: Ids,
        *,
        negative_ids: Int[Array | np.ndarray, "batch negatives length"] | None = None,
        positive_ids: Int[Array | np.ndarray, "batch positives length"] | None = None,
    ) -> Outputs:
        """Features and scores of a batch of pairs, as losses read them (`vlc_jax.losses.total`).

        A pure function. Running statistics of a head (DCSM) are those of the loaded model.
        images: of `preprocess`.   ids: of `tokenizer`, for each image its caption.
        negative_ids, positive_ids: hard negatives and hard positives of each caption.
        Raises UsageError for a model that also reads questions, or marks of words, for another
        number of captions than images, and for hard texts that are not a list per caption.
        """
        check_pairs(images, ids, negative_ids=negative_ids, positive_ids=positive_ids)
        batch = {"text": ids, "negative_text": negative_ids, "positive_text": positive_ids}
        batch = {"image": images} | {key: x for key, x in batch.items() if x is not None}
        return self._pure(params, lambda model, batch: model(batch), batch)

    def encode_image(self, params: Any, images: Pixels) -> ImageFeatures:
        """ImageFeatures, whose `pooled` is the embeddings. A pure function, as `apply`."""
        return self._pure(
            params, lambda model, x: model.encode_image(x["image"]), {"image": images}
        )

    def encode_text(self, params: Any, ids: Ids) -> TextFeatures:
        """TextFeatures, whose `pooled` is the embeddings. A pure function, as `apply`."""
        return self._pure(params, lambda model, x: model.encode_text(x["text"]), {"text": ids})

    def _pure(self, params: Any, method: Any, batch: Mapping[str, Any]) -> Any:
        if self.tokenizer.has_marks or self._setup.evaluation.question:
            raise UsageError(
                f"{self!r} reads questions about images or marks of words besides token ids: use "
                "score or answers, which take images and texts"
            )
        columns = self.tokenizer.width or self.tokenizer.context_length
        check_arrays(batch, image_shape(self._setup.model.image), columns)
        batch = {name: jnp.asarray(x) for name, x in batch.items()}
        if "image" in batch:
            batch["image"] = self._setup.normalise(batch["image"])
        return nn.apply(method, self._setup.model)({**self._variables, "params": params}, batch)

    def embed_texts(self, texts: Sequence[Caption]) -> Float[np.ndarray, "texts embed"]:
        """Embeddings of unit length."""
        return self._pooled(self._encodable(texts), "embed_texts")

    def score(
        self,
        images: Sequence[AnyImage],
        texts: Sequence[Caption],
        *,
        negation: bool | Mapping[str, Any] = False,
        segments: bool | str | Mapping[str, Any] = False,
    ) -> Float[np.ndarray, "images texts"]:
        """Scores of every image with every text, before `logit_scale` and `logit_bias`.

        A score is the cosine similarity, or the score of the model's head (PACL, DCSM, SPARC).
        Scores are computed in blocks of one shape, with a side of 1, 8 or `batch_size` rows (1,024
        without a head). So a call compiles one shape at most, and calls of similar size share it.
        For a head, tokens of eight batches of images and of texts are in memory at a time; more
        texts than that are embedded again for the next images.
        negation: takes what a text negates out of its embedding, without training: True, or some of
          the fields of `evaluators.negation.Negation` as a mapping. Other texts keep their scores.
        segments: scores by the segments of a text, without training: True or "patches", "crops", or
          some of the fields of `evaluators.scorer.Segments` as a mapping.
        Raises UsageError for negation or segments with a head that scores tokens, and for both.
        """
        inputs, texts, how = as_images(images), as_texts(texts), negations.options(negation)
        self._encodable([*texts, *(negations.texts(texts, how) if how else ())])
        scores = np.zeros((len(inputs), len(texts)), np.float32)
        evaluators.check("choice", {"negation": negation, "segments": segments})
        if not scores.size:
            return scores
        if parts := evaluators.segments(segments):
            # a batch of images has many crops, and a text several segments
            scorer = evaluators.in_segments(self._scorer(self._batch_size), parts)
            found = scorer.score(scorer.embed_images(inputs), scorer.embed_texts(texts))
            return stats.require_finite(found)
        has_head = self._setup.model.has_head
        in_memory = _KEPT_BATCHES * self._batch_size if has_head else max(scores.shape)
        image_scorer, text_scorer = self._scorer(len(inputs)), self._scorer(len(texts))
        if how:
            text_scorer = negations.correcting(text_scorer, how)
        in_blocks, text = self._in_blocks(*scores.shape), None
        for top in range(0, len(inputs), in_memory):
            image = image_scorer.embed_images(inputs[top : top + in_memory])
            for left in range(0, len(texts), in_memory):
                if text is None or len(texts) > in_memory:
                    text = text_scorer.embed_texts(texts[left : left + in_memory])
                part = scores[top : top + in_memory, left : left + in_memory]
                part[:] = in_blocks(image, text)
        return stats.require_finite(scores)

    def score_pairs(
        self, images: Sequence[AnyImage], texts: Sequence[Caption]
    ) -> Float[np.ndarray, " pairs"]:
        """Scores of image i with text i. Images that are listed side by side are encoded once."""
        inputs, texts = as_images(images), self._encodable(texts)
        check_one_of_each(inputs, texts)
        scores, size = np.zeros(len(texts), np.float32), self._batch_size
        scorer, rows = self._scorer(len(texts)), min(size, 1 << max(len(texts) - 1, 0).bit_length())
        for start in range(0, len(texts), size):
            part = slice(start, start + size)
            names = [image if isinstance(image, Path) else id(image) for image in inputs[part]]
            distinct = dict(zip(names, inputs[part], strict=True))
            place = {name: row for row, name in enumerate(distinct)}
            image = take(
                scorer.embed_images([*distinct.values()]), np.array([place[x] for x in names])
            )
            text = scorer.embed_texts(texts[part])
            scores[part] = score_options_in_blocks(scorer.score_options, image, text, rows)[:, 0]
        return stats.require_finite(scores)

    def _in_blocks(self, images: int, texts: int) -> Any:
        """A function of features -> scores, in blocks for this number of images and texts."""
        largest = self._batch_size if self._setup.model.has_head else _POOLED_BLOCK
        # by the size of the whole call, so that its last blocks have the shape of the first ones
        height, width = (_block(count, largest) for count in (images, texts))
        score = self._scorer(self._batch_size).score
        in_blocks = partial(score_in_blocks, score, height=height, width=width)
        head = self._setup.model.head
        # an embedder (VLM2Vec) has read the ids
        is_ids = head.requests[1].tokens == "ids" and not all(head.reads_pooled)
        return on_short_texts(in_blocks) if is_ids else in_blocks

    def zero_shot(
        self,
        images: Sequence[AnyImage],
        class_names: Sequence[str],
        templates: Sequence[str] = ("{}",),
    ) -> Float[np.ndarray, "images classes"]:
        """Scores of every image with every class; the class of image i is `scores[i].argmax()`.

        As in evaluation (`evaluators.zeroshot`): the embedding of a class is the mean of the
        embeddings of its prompts; a head that reads text tokens gets the mean of the scores.
        templates: {} stands for the class, as in "a photo of a {}".
        Raises UsageError without a class, without a template, or for a template without one {}.
        """
        inputs, classes = as_images(images), tuple(as_texts(class_names, "class_names"))
        with usage_errors():
            templates = prompt_texts.templates(as_texts(templates, "templates"))
        if not classes:
            raise UsageError("zero_shot needs at least one class")
        benchmark = Benchmark("zero_shot", (), "", classes=classes, templates=templates)
        texts = len(classes) * (len(templates) if self._setup.model.has_head else 1)
        scorer = self._scorer(max(len(inputs), len(benchmark.prompts)))
        scorer = scorer._replace(score=self._in_blocks(len(inputs), texts))
        score = zeroshot.class_scorer(benchmark, scorer)
        rows, size = np.zeros((len(inputs), len(classes)), np.float32), self._batch_size
        for start in range(0, len(inputs), size):
            rows[start : start + size] = score(scorer.embed_images(inputs[start : start + size]))
        return stats.require_finite(rows)

    def patch_maps(
        self, images: Sequence[AnyImage], texts: Sequence[Caption]
    ) -> dict[str, np.ndarray]:
        """Weights of the patches behind the score of image i with text i (PACL, SPARC, DCSM).

        Names and axes: `models.heads.Head.patch_maps`. Patches are in raster order, after the class
        token if there is one. Raises UsageError for a model without patch maps.
        """
        inputs, texts = as_images(images), self._encodable(texts)
        check_one_of_each(inputs, texts)
        scorer = self._scorer(len(inputs))
        features = scorer.embed_images(inputs), scorer.embed_texts(texts)
        maps = compiled(self._setup, lambda model, image, text: model.patch_maps(image, text))
        arrays = {name: np.asarray(x) for name, x in maps(self._variables, *features).items()}
        if not arrays:
            raise UsageError(
                f"{self!r} scores pooled features, which have no patch maps: load a model with the "
                "head pacl, sparc or dcsm"
            )
        return arrays

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
        inputs, questions = as_images(images), as_texts(questions)
        check_one_of_each(inputs, questions, "questions")
        pairs = zip(inputs, questions, strict=True)
        pairs = [with_question(*pair, self._setup.evaluation.question) for pair in pairs]
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
        template = self._setup.evaluation.question
        source, question = with_question(as_image(image), question, template)
        features = self._scorer(1).embed_images([source])
        text = TextStream(self._writer.tokenizer)
        for token in self._writer.stream(self._variables, features, question, Decoding(**decoding)):
            if piece := text(token):
                yield piece

    @cached_property
    def _writer(self) -> Answers:
        return Answers(self._setup)

    def _encodable(self, texts: Sequence[Caption]) -> list[Caption]:
        """The texts as records have them, without white space at their ends; with precomputed text
        vectors, vectors of missing texts are computed first."""
        listed: list[Caption] = trimmed(as_texts(texts))
        # forget: a model that is loaded for days must not keep every text
        self._setup.tokenizer.require(listed, forget=True)
        return listed

    def _pooled(self, items: Sequence[Any], method: str) -> np.ndarray:
        """Pooled features of all items by a method of Scorer."""
        rows = np.zeros((len(items), self._setup.model.embed), np.float32)
        # a batch at a time: token features, which are 100 times as large, are not kept
        size = self._batch_size if self._setup.model.has_head else max(len(items), 1)
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
        return self._hash(self.config["model"])

    @cached_property
    def score_fingerprint(self) -> str:
        """The same for any devices and dtype of matrix products: what a calibration belongs to."""
        fields = self.config["model"].items()
        return self._hash({k: v for k, v in fields if k not in exported_config.OF_DEVICES})

    def _hash(self, model: Mapping[str, Any]) -> str:
        setup = self._setup
        # not the whole config: learning rate and data do not change embeddings
        facts = [
            model,
            self.config["input"]["normalisation"],
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

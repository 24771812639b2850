"""Data of a run: tokenizer, image transforms, training records, hard texts, benchmarks."""

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
from ml_collections import ConfigDict

from vlc_jax import evaluators
from vlc_jax.errors import UsageError, known
from vlc_jax.input_pipeline import benchmarks as benchmark_readers
from vlc_jax.input_pipeline import tokenizers
from vlc_jax.input_pipeline.benchmarks import Benchmark
from vlc_jax.input_pipeline.hard_texts import sampling
from vlc_jax.input_pipeline.hard_texts.noun_phrases import NounPhrases
from vlc_jax.input_pipeline.hard_texts.sampling import HardTexts, make_hard_texts
from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.loader.inspection import preview
from vlc_jax.input_pipeline.loader.loader import Loader, make_train
from vlc_jax.input_pipeline.loader.stored_features import FeatureTransform
from vlc_jax.input_pipeline.record import Source
from vlc_jax.input_pipeline.sources import make_source
from vlc_jax.input_pipeline.tokenizers import CONVERSATIONS
from vlc_jax.input_pipeline.tokenizers.functional_words import FunctionalWordTokenizer
from vlc_jax.input_pipeline.tokenizers.text_vectors import TextVectors
from vlc_jax.input_pipeline.tokenizers.tokenizer import Tokenizer
from vlc_jax.models.parameters import TOWERS
from vlc_jax.run.workdir import is_workdir, saved_config
from vlc_jax.setup import addresses
from vlc_jax.types.setup import BenchmarkSetup

Tokenizer = Tokenizer | TextVectors
Transform = image_ops.ImageTransform | FeatureTransform

# Fields of config.input.shards that say how training reads records, and not which they are.
READING = ("shuffle", "stage", "stage_gb")
# Fields of config.model that image features depend on, and those that text features add.
IMAGE_FIELDS = ("variant", "activation", "epsilon", "dtype", "image")
TEXT_FIELDS = ("vocab_size", "text")


class TrainingData(NamedTuple):
    """Training records, and what is made of them at each reading.

    hard_texts: "negatives" and "positives" of every caption, with their generators.
    preview: records that are read and checked before anything is compiled.
    max_bad_share: share of unusable records that ends the run.
    loader: further keyword arguments of `vlc_jax.input_pipeline.make_train`.
    question: template of what is asked of every image; "": nothing. text_only_question: the same,
      where a record is a text alone.
    has_features: whether the records hold features of frozen towers instead of images.
    feature_cache_key: of those features.
    text_lengths: columns that the texts of a batch may have, ascending, up to all of them.
    """

    source: Source
    tokenizer: Tokenizer
    transform: Transform
    hard_texts: Mapping[str, HardTexts]
    noun_phrases: NounPhrases | None
    batch_size: int
    seed: int
    hard_images: int
    preview: int
    max_bad_share: float
    loader: Mapping[str, Any]
    question: str
    text_only_question: str
    has_features: bool
    feature_cache_key: Mapping[str, Any]
    text_lengths: tuple[int, ...]

    @property
    def has_duplicates(self) -> bool:
        """True if a batch holds some record twice, since the source is smaller."""
        return self.batch_size // (1 + self.hard_images) > len(self.source)

    def fingerprints(self) -> dict[str, Any]:
        """Identities of source, hard texts, noun phrases and text vectors, by which a resumed run
        notices that its data changed."""
        found = {"train": self.source.fingerprint}
        found |= sampling.versions(self.hard_texts)
        if self.noun_phrases:
            found["noun_phrases"] = self.noun_phrases.version
        if isinstance(self.tokenizer, TextVectors):
            found["vectors"] = self.tokenizer.fingerprint
        return found

    @property
    def image_sizes(self) -> dict[str, int]:
        """Name -> bytes of some of the image files, of a source that reads single files."""
        return getattr(self.source, "image_sizes", {})

    def check_preview(self) -> None:
        """Reads the first records as training will: bad data stops the run before it compiles."""
        report = preview(
            self.source,
            self.tokenizer,
            self.transform,
            count=self.preview,
            max_bad_share=self.max_bad_share,
        )
        with usage_errors():
            report.check_tokenizer()
            report.check_hard_texts(self.hard_texts)
        for warning in report.warnings():
            logging.warning("%s", warning)

    def make_loader(self, start_step: int, known_bad: list[str]) -> Loader:
        """Batches from `start_step` on; `known_bad` are records that earlier starts found."""
        with usage_errors():
            return make_train(
                self.source,
                self.tokenizer,
                self.transform,
                batch_size=self.batch_size,
                seed=self.seed,
                start_step=start_step,
                process_index=jax.process_index(),
                process_count=jax.process_count(),
                max_bad_share=self.max_bad_share,
                known_bad=known_bad,
                hard_images=self.hard_images,
                noun_phrases=self.noun_phrases,
                question=self.question,
                text_only_question=self.text_only_question,
                **self.hard_texts,
                **self.loader,
            )


def training_data(config: ConfigDict, tokenizer: Tokenizer, model: nn.Module) -> TrainingData:
    """The training half of config.input."""
    return TrainingData(
        source=source(config, "train"),
        tokenizer=tokenizer,
        transform=image_transform(config, is_training=True),
        hard_texts=hard_texts(config),
        noun_phrases=noun_phrases(config),
        batch_size=config.batch_size,
        seed=config.seed,
        hard_images=config.input.hard_images,
        preview=config.input.preview,
        max_bad_share=config.input.max_bad_share,
        loader=config.input.loader.to_dict(),
        question=config.input.question,
        text_only_question=config.input.text_only_question,
        has_features=config.input.source == "features",
        feature_cache_key=feature_cache_key(config, model, tokenizer),
        text_lengths=(*config.text.lengths, config.text.context_length),
    )


def make_tokenizer(config: ConfigDict) -> Tokenizer:
    """The configured tokenizer, or what reads vectors of texts from a file."""
    name, functional = config.text.tokenizer, config.text.functional_words
    if name == "vectors" and functional.words:
        raise UsageError("config.text.functional_words are tokens, and a vector of a text has none")
    with usage_errors():
        options = tokenizer_options(config)
        if name == "conversation" and isinstance(config.model.head.get("prefix"), str):
            # of conversations without an image, which bring what the head reads before one
            options = {**options, "before": config.model.head.prefix}
        plain = tokenizers.make_tokenizer(name, config.text.context_length, **options)
        if not functional.words:
            return plain
        return FunctionalWordTokenizer(plain, **functional)


class TokenizerShape(NamedTuple):
    """Sizes of a tokenizer that shapes of a model and its batch depend on; a plan, which reads no
    files, needs no more.

    has_marks: whether it marks tokens, of functional words or answers (`tokenizers.tokenize`).
    """

    context_length: int
    has_marks: bool
    eos_id: int = 0


def tokenizer_shape(config: ConfigDict) -> TokenizerShape | TextVectors:
    """In place of `make_tokenizer`; only vectors of texts are opened, for their width."""
    if config.text.tokenizer == "vectors":
        return make_tokenizer(config)
    is_conversation = config.text.tokenizer in CONVERSATIONS
    has_marks = is_conversation or bool(config.text.functional_words.words)
    return TokenizerShape(config.text.context_length, has_marks)


def all_texts(config: ConfigDict) -> tuple[Source, bool, dict[str, BenchmarkSetup]]:
    """(training source, whether its hard images are read, benchmarks) for a tool that reads all
    texts of a run and needs no tokenizer."""
    return source(config, "train"), config.input.hard_images > 0, benchmarks(config)


def source(config: ConfigDict, split: str) -> Source:
    """The records of one split of the configured source."""
    with usage_errors():
        options = source_options(config)
        if split == "train":
            if options["source"] == "shards":
                options |= _options(config.input, "shards", config.input.source_options)
            if config.input.exclude:
                options["exclude"] = config.input.exclude
        return make_source(options.pop("source"), split, **options)


def source_options(config: ConfigDict) -> dict[str, Any]:
    """The configured source's name and its own options, those of READING left out."""
    name = config.input.source
    options = _options(config.input, name, config.input.source_options)
    left_out = READING if name == "shards" else ()
    return {"source": name, **{key: options[key] for key in options if key not in left_out}}


def tokenizer_options(config: ConfigDict) -> dict[str, Any]:
    """The options of the configured tokenizer: where its path is the workdir of a run, that run's.

    Raises UsageError for a run with a tokenizer of another kind.
    """
    name, folders = config.text.tokenizer, list[str]()
    while True:
        options = _options(config.text, name, config.text.tokenizer_options)
        path = options.get("path")
        path = path and str(addresses.copy_of("config.text", path))
        if not path or not is_workdir(Path(path)):
            return {**options, "path": path} if path else options
        if path in folders:
            raise UsageError(f"the tokenizer of {path} is that of {path}: name its files")
        folders.append(path)
        config = saved_config(Path(path))
        if config.text.tokenizer != name:
            raise UsageError(
                f"the run in {path} has the tokenizer {config.text.tokenizer!r}, not {name!r}: set "
                "config.text.tokenizer to that, or name another file"
            )


def image_transform(config: ConfigDict, is_training: bool) -> Transform:
    """Decoding, cropping and resizing of images.

    Random crops and jitter belong to training; evaluation crops the centre, unless eval_crop says
    otherwise. Stored features have no pixels in training.
    """
    if is_training and config.input.source == "features":
        return FeatureTransform()
    crop = config.input.crop
    if not is_training:
        crop = config.input.eval_crop or ("centre" if crop == "random_resized" else crop)
        known("crop of evaluation", crop, ("centre", "none", "pad"))
    with usage_errors():
        return image_ops.ImageTransform(
            size=config.input.image_size,
            crop=crop,
            scale=tuple(config.input.crop_scale),
            **(config.input.jitter if is_training else {}),
            interpolation=config.input.interpolation,
        )


def hard_texts(config: ConfigDict) -> dict[str, HardTexts]:
    """Hard "negatives" and "positives" of every caption, their generators made."""
    with usage_errors():
        return {
            side: make_hard_texts(side, **_text_options(config, side))
            for side in ("negatives", "positives")
        }


def noun_phrases(config: ConfigDict) -> NounPhrases | None:
    """The replacement of captions by their noun phrases; None where the share is 0."""
    with usage_errors():
        options = config.input.noun_phrases
        return NounPhrases(**options) if options.share else None


def benchmarks(config: ConfigDict) -> dict[str, BenchmarkSetup]:
    """Name -> benchmark of config.evals; files are opened by `read` only."""
    return {name: _benchmark(config, name) for name in config.evals}


def _benchmark(config: ConfigDict, name: str) -> BenchmarkSetup:
    options = config.evals[name].to_dict()
    reader = options.get("reader", name)
    protocol = benchmark_readers.protocol_of(reader)
    of_protocol = evaluators.protocol_options(protocol, options.get("protocol", ""))
    of_reader = {k: v for k, v in options.items() if k not in ("reader", *of_protocol)}
    if benchmark_readers.reads_source(reader) and "source" not in of_reader:
        of_reader = {**source_options(config), **of_reader}
    return BenchmarkSetup(
        reader=reader,
        read=partial(_read_benchmark, name, reader, of_reader),
        protocol_options={key: value for key, value in options.items() if key in of_protocol},
        options=options,
        reader_options=of_reader,
    )


def _read_benchmark(name: str, reader: str, options: Mapping[str, Any]) -> Benchmark:
    """Raises UsageError for a wrong option."""
    try:
        return benchmark_readers.READERS[reader](**options)
    except (TypeError, ValueError) as error:
        raise UsageError(f"config.evals.{name}: {error}") from error


def feature_cache_key(config: ConfigDict, model: nn.Module, tokenizer: Tokenizer) -> dict[str, Any]:
    """Cache key of precomputed features, beside weights and records: towers, pixels, requests.

    It has no text fields if only the image tower is frozen.
    """
    image, text = model.head.requests
    fields = config.model.to_dict()
    key = {
        "frozen": [name for name in TOWERS if name in config.frozen],
        "image_size": config.input.image_size,
        "crop": image_transform(config, is_training=False).crop,
        "interpolation": config.input.interpolation,
        "normalisation": config.input.normalisation,
        "model": {name: fields[name] for name in IMAGE_FIELDS},
        "image": image._asdict(),
    }
    if "text" in config.frozen:
        key["model"] |= {name: fields[name] for name in TEXT_FIELDS}
        key["tokenizer"] = tokenizer.fingerprint
        key["context_length"] = config.text.context_length
        key["text"] = text._asdict()
    return key


def check_features(source: Source, key: dict[str, Any]) -> None:
    """Raises UsageError naming how stored features differ from what the config's towers give."""
    stored, wanted = source.facts, json.loads(json.dumps(key))
    differing = [name for name in wanted if stored.get(name) != wanted[name]]
    if differing:
        lines = "; ".join(f"{name} {stored.get(name)}, not {wanted[name]}" for name in differing)
        raise UsageError(
            f"the features at config.input.features.path are of other towers or pixels: {lines}; "
            "store them again (vlc-jax cache_features) or change the config"
        )


@contextmanager
def usage_errors() -> Iterator[None]:
    """A ValueError of the input pipeline, which knows no exit codes, becomes a UsageError."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from error


def _text_options(config: ConfigDict, side: str) -> dict[str, Any]:
    """Generators of the scenes are made for the world that the pictures are of."""
    asked, scenes = config.input[side].to_dict(), config.input.scenes
    world = {"world": scenes.world, "world_options": scenes.world_options.to_dict()}
    of_scenes = [kind for kind in asked["generators"] if kind.startswith("scenes_")]
    options = {kind: world | asked["options"].get(kind, {}) for kind in of_scenes}
    return asked | {"options": asked["options"] | options}


def _options(group: ConfigDict, name: str, further: ConfigDict) -> dict[str, Any]:
    """The fields of a source or tokenizer in the config, and further options; None is unset."""
    listed = group[name].to_dict() if name in group else {}
    options = {**listed, **further.to_dict()}
    return {key: value for key, value in options.items() if value is not None}

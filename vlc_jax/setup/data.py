"""Data of a run: tokenizer, image transforms, training records, hard texts, benchmarks."""

import inspect
import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
from ml_collections import ConfigDict

from vlc_jax import evaluators, losses
from vlc_jax.errors import UsageError, known, usage_errors
from vlc_jax.input_pipeline import benchmarks as benchmark_readers
from vlc_jax.input_pipeline import lookup, stores, tokenizers
from vlc_jax.input_pipeline.benchmarks import Benchmark, equal_cases
from vlc_jax.input_pipeline.hard_texts import sampling
from vlc_jax.input_pipeline.hard_texts.noun_phrases import NounPhrases
from vlc_jax.input_pipeline.hard_texts.sampling import HardTexts, make_hard_texts
from vlc_jax.input_pipeline.images import transforms
from vlc_jax.input_pipeline.loader.inspection import preview
from vlc_jax.input_pipeline.loader.loader import Loader, make_train
from vlc_jax.input_pipeline.loader.stored_features import FeatureTransform
from vlc_jax.input_pipeline.loader.views import Views
from vlc_jax.input_pipeline.record import DataError, Source
from vlc_jax.input_pipeline.sources import SOURCES, make_source
from vlc_jax.input_pipeline.tokenizers.functional_words import FunctionalWordTokenizer
from vlc_jax.input_pipeline.tokenizers.tokenizer import Tokenizer
from vlc_jax.models import variants
from vlc_jax.models.parameters import TOWERS
from vlc_jax.run.workdir import is_workdir, saved_config
from vlc_jax.setup import addresses
from vlc_jax.types.setup import BenchmarkSetup

Transform = transforms.ImageTransform | FeatureTransform

# Options of sources for training alone: benchmarks of the same source are read without them.
OF_TRAINING = ("exclude", "shuffle", "stage", "stage_gb", "weights", "caption_weights")
# The literature trains on both; `vlc-jax prepare` takes the splits of its --split instead.
TRAIN_SPLITS = {"coco": "train+restval"}
COMPARED_IMAGES = 50_000  # of training with those of benchmarks: a second or two
# Fields of config.model that image features depend on; text features depend on both tuples.
IMAGE_FIELDS = ("variant", "activation", "epsilon", "dtype", "image")
TEXT_FIELDS = ("vocab_size", "text")


class TrainingData(NamedTuple):
    """Training source, tokenizer, transform, hard texts and loader options.

    hard_texts: "negatives" and "positives" of every caption, with their generators.
    preview: number of records that are read and checked before anything is compiled.
    max_bad_share: share of unusable records at which the run ends.
    loader: further keyword arguments of `vlc_jax.input_pipeline.make_train`.
    question: template of the question about every image; "": no question. text_only_question: the
      same for records without an image.
    has_features: whether the records hold features of frozen towers instead of images.
    feature_cache_key: cache key of these features.
    text_lengths: numbers of columns that the texts of a batch may have, ascending; the last one is
      the context length.
    """

    source: Source
    tokenizer: Tokenizer
    transform: Transform
    hard_texts: Mapping[str, HardTexts]
    noun_phrases: NounPhrases | None
    views: Views | None
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
        """True if the batch is larger than the source, so that records repeat in it."""
        return self.batch_size // (1 + self.hard_images) > len(self.source)

    def fingerprints(self) -> dict[str, Any]:
        """Fingerprints of source, hard texts, noun phrases and text vectors.

        A resumed run compares them to detect changed data.
        """
        versions = {"train": self.source.fingerprint}
        versions |= sampling.versions(self.hard_texts)
        if self.noun_phrases:
            versions["noun_phrases"] = self.noun_phrases.version
        if self.tokenizer.width:
            versions["vectors"] = self.tokenizer.fingerprint
        return versions

    @property
    def image_sizes(self) -> dict[str, int]:
        """Name -> bytes of a sample of image files; {} if the source reads no single files."""
        return getattr(self.source, "image_sizes", {})

    def check_preview(self) -> None:
        """Reads the first records as training does: bad data is refused before compiling."""
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
        for warning in [*report.warnings(), *report.unused(self.hard_texts)]:
            logging.warning("%s", warning)

    def make_loader(self, start_step: int, known_bad: list[str]) -> Loader:
        """Loader from `start_step` on; `known_bad`: ids of unusable records of earlier starts."""
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
                views=self.views,
                question=self.question,
                text_only_question=self.text_only_question,
                **self.hard_texts,
                **self.loader,
            )


def training_data(config: ConfigDict, tokenizer: Tokenizer, model: nn.Module) -> TrainingData:
    """Training data of config.input, config.text and the batch fields."""
    return TrainingData(
        source=source(config, "train"),
        tokenizer=tokenizer,
        transform=image_transform(config, is_training=True),
        hard_texts=hard_texts(config),
        noun_phrases=noun_phrases(config),
        views=views(config, model),
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
    """The configured tokenizer."""
    name, functional = config.text.tokenizer, config.text.functional_words
    if name == "vectors" and functional.words:
        raise UsageError("config.text.functional_words are tokens, and a vector of a text has none")
    with usage_errors():
        options = tokenizer_options(config)
        if name == "conversation" and isinstance(config.model.head.get("prefix"), str):
            # conversations without an image contain the text that the head reads before an image
            options = {**options, "before": config.model.head.prefix}
        plain = tokenizers.make_tokenizer(name, config.text.context_length, **options)
        if not functional.words:
            return plain
        return FunctionalWordTokenizer(plain, **functional)


class TokenizerShape(Tokenizer):
    """Tokenizer properties that determine shapes; a plan, which reads no files, uses it instead."""

    eos_id = 0

    def __init__(self, config: ConfigDict) -> None:
        table = tokenizers.TOKENIZERS
        kind = table[known("tokenizer", config.text.tokenizer, table)]
        self.context_length = config.text.context_length
        self.reads_conversations = getattr(kind, "reads_conversations", False)
        self.words = tuple(config.text.functional_words.words)

    def before_image(self, text: str) -> tuple[int, ...]:
        """(), since a plan reads no vocabulary."""
        return ()


def tokenizer_shape(config: ConfigDict) -> Tokenizer:
    """The configured tokenizer's shape, without reading files but text vectors, for their width."""
    is_vectors = config.text.tokenizer == "vectors"
    return make_tokenizer(config) if is_vectors else TokenizerShape(config)


def all_texts(config: ConfigDict) -> tuple[Source, bool, dict[str, BenchmarkSetup]]:
    """(training source, whether its hard images are read, benchmarks).

    For a tool that reads all texts of a run and needs no tokenizer.
    """
    return source(config, "train"), config.input.hard_images > 0, benchmarks(config)


def source(config: ConfigDict, split: str) -> Source:
    """The records of one split of the configured source."""
    with usage_errors():
        options = source_options(config, is_training=split == "train")
        return make_source(options.pop("source"), split, **options)


def training_images(config: ConfigDict, opened: Source | None = None) -> set[Path]:
    """Image files of about COMPARED_IMAGES rows spread over the training table; none if it is not
    on this machine, or holds the images itself. opened: the source, if it is open."""
    is_here = not stores.is_url(config.input.source_options.get("path") or "")
    try:
        if is_here and hasattr(SOURCES.get(config.input.source), "image_paths"):
            return (opened or source(config, "train")).image_paths(COMPARED_IMAGES)
    except (UsageError, DataError, OSError):
        logging.info("benchmarks are not compared with the training images, which are not here")
    return set()


def source_options(config: ConfigDict, is_training: bool = False) -> dict[str, Any]:
    """The configured source's name and its options, OF_TRAINING among them only for training."""
    name = config.input.source
    options = _options(config.input, name, config.input.source_options)
    if name in TRAIN_SPLITS:
        options = {"train_split": TRAIN_SPLITS[name], **options}
    left_out = () if is_training else OF_TRAINING
    return {"source": name, **{key: options[key] for key in options if key not in left_out}}


def check_options(config: ConfigDict) -> None:
    """Raises UsageError for an unknown source or tokenizer, an unknown option or a wrong type."""
    tables = {"input.source": SOURCES, "text.tokenizer": tokenizers.TOKENIZERS}
    for field, table in tables.items():
        side, kind = field.split(".")
        name, further = config[side][kind], config[side][f"{kind}_options"]
        try:
            options = _options(config[side], name, further)
            lookup.check(kind, table, name, options, passed=("split", "context_length"))
        except ValueError as error:
            # the config's options may be those of the source or tokenizer that was there before
            advice = f'--config.{field}_options="{{...}}" replaces all options'
            raise UsageError(f"{error}; {advice}") from error


def tokenizer_options(config: ConfigDict) -> dict[str, Any]:
    """Options of the configured tokenizer; if its path is a workdir, the options of that run.

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
            raise UsageError(f"the tokenizer path of the run in {path} leads to itself: name files")
        folders.append(path)
        config = saved_config(Path(path))
        if config.text.tokenizer != name:
            raise UsageError(
                f"the run in {path} has the tokenizer {config.text.tokenizer!r}, not {name!r}: set "
                "config.text.tokenizer to it, name another file, or evaluate the run itself (run=)"
            )


def image_transform(config: ConfigDict, is_training: bool) -> Transform:
    """The transform that decodes, crops and resizes images.

    Random crops and jitter are for training; evaluation crops the centre, unless eval_crop is set.
    Stored features have no pixels in training.
    """
    if is_training and config.input.source == "features":
        return FeatureTransform()
    crop = config.input.crop
    if not is_training:
        crop = config.input.eval_crop or ("centre" if crop in transforms.RANDOM else crop)
        known("crop of evaluation", crop, transforms.OF_EVALUATION)
    with usage_errors():
        return transforms.ImageTransform(
            size=config.input.image_size,
            crop=crop,
            scale=tuple(config.input.crop_scale),
            **(config.input.jitter if is_training else {}),
            interpolation=config.input.interpolation,
            patch_size=_patch_size(config) if crop == transforms.NAFLEX else None,
        )


def _patch_size(config: ConfigDict) -> int | None:
    variant = known("variant", config.model.variant, variants.VARIANTS)
    return config.model.image.get("patch_size") or variants.VARIANTS[variant].patch_size


def hard_texts(config: ConfigDict) -> dict[str, HardTexts]:
    """Hard "negatives" and "positives" of every caption, with their generators."""
    with usage_errors():
        return {
            side: make_hard_texts(side, **_text_options(config, side))
            for side in ("negatives", "positives")
        }


def noun_phrases(config: ConfigDict) -> NounPhrases | None:
    """Replaces captions by their noun phrases; None if the share is 0."""
    with usage_errors():
        options = config.input.noun_phrases
        return NounPhrases(**options) if options.share else None


def views(config: ConfigDict, model: nn.Module) -> Views | None:
    """Further views of each training image, as the losses self_distill and masked_patches need
    them; None without these losses. Raises UsageError for stored features."""
    terms = config.losses.to_dict()
    crops, masked = (losses.options_of(name, terms) or {} for name in losses.CENTRED)
    if not (crops or masked):
        return None
    if config.input.source == "features":
        raise UsageError(
            f"the losses {' and '.join(losses.CENTRED)} encode further views of an image, which "
            "stored features lack: read the images"
        )
    side, grid = model.image.image_size, model.image.grid
    patch, size = side // grid, crops.get("size") or side
    has_rope = getattr(model.image, "rope", "none") != "none"
    if size % patch or size > side or (has_rope and size < side):
        raise UsageError(
            f"size of self_distill is a multiple of the patches' {patch} pixels, up to the image's "
            f"{side}, and with rope 0, which is the image's; got {size}"
        )
    transform = transforms.ImageTransform(
        size=size,
        crop="random_resized",
        scale=tuple(crops.get("scale", (1.0, 1.0))),
        interpolation=config.input.interpolation,
    )
    # at least one: without a masked patch the mean over them is 0 / 0
    count = max(1, round(grid**2 * masked["ratio"])) if masked else 0
    return Views(transform, crops.get("crops", 0), grid**2, count)


def benchmarks(config: ConfigDict) -> dict[str, BenchmarkSetup]:
    """Name -> benchmark of config.evals; only its `read` opens files."""
    default_source = partial(source_options, config)
    return {
        name: benchmark(f"config.evals.{name}", name, options.to_dict(), default_source)
        for name, options in config.evals.items()
    }


def benchmark(
    field: str,
    name: str,
    options: Mapping[str, Any],
    default_source: Callable[[], Mapping[str, Any]] = dict,
) -> BenchmarkSetup:
    """A benchmark by its name and its options, of which only `read` opens files.

    field: of the config, for messages.   default_source: options of the source of a benchmark that
      reads one and names none.
    """
    reader = options.get("reader", name)
    protocol = benchmark_readers.protocol_of(reader)
    protocol_names = evaluators.protocol_options(protocol, options.get("protocol", ""))
    reader_options = {k: v for k, v in options.items() if k not in ("reader", *protocol_names)}
    if benchmark_readers.reads_source(reader) and "source" not in reader_options:
        reader_options = {**default_source(), **reader_options}
    return BenchmarkSetup(
        reader=reader,
        read=partial(_read_benchmark, field, reader, reader_options),
        protocol_options={key: value for key, value in options.items() if key in protocol_names},
        options=dict(options),
        reader_options=reader_options,
    )


def _read_benchmark(field: str, reader: str, options: Mapping[str, Any]) -> Benchmark:
    """Reads a benchmark. Raises UsageError for an invalid option."""
    factory = benchmark_readers.READERS[reader]
    try:
        names = [*inspect.signature(factory).parameters]
        if "options" not in names:  # else they are also those of a source
            names += evaluators.protocol_options(benchmark_readers.protocol_of(reader))
            lookup.check_known(f"option of {reader}", options, names)
        lookup.check_types("benchmark", reader, factory, options)
        read = factory(**options)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{field}: {error}") from error
    return equal_cases.noted(read, benchmark_readers.protocol_of(reader))


def feature_cache_key(config: ConfigDict, model: nn.Module, tokenizer: Tokenizer) -> dict[str, Any]:
    """Cache key of precomputed features: towers, pixels and feature requests.

    Weights and records are further parts of the key. No text fields if only the image tower is
    frozen.
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


def _text_options(config: ConfigDict, side: str) -> dict[str, Any]:
    """Options of hard texts; generators of scenes also get the world of the images."""
    texts, scenes = config.input[side].to_dict(), config.input.scenes
    world = {"world": scenes.world, "world_options": scenes.world_options.to_dict()}
    scene_kinds = [kind for kind in texts["generators"] if kind.startswith("scenes_")]
    options = {kind: world | texts["options"].get(kind, {}) for kind in scene_kinds}
    return texts | {"options": texts["options"] | options}


def _options(group: ConfigDict, name: str, further: ConfigDict) -> dict[str, Any]:
    """Options of a source or tokenizer from `further`, without None.

    "scenes" also has config fields, since hard texts and benchmarks read the same world.
    """
    listed = group.scenes.to_dict() if name == "scenes" else {}
    options = {**listed, **further.to_dict()}
    return {key: value for key, value in options.items() if value is not None}

"""Config validation, before anything is built.

`check` reads the config alone, `check_model` also the tokenizer and the model built from it. Paths,
sizes and names of tables are checked by the modules that use them.
"""

import fnmatch
import logging
import math
import re
from collections.abc import Callable, Iterator

import flax.linen as nn
from ml_collections import ConfigDict

from vlc_jax import evaluators, losses
from vlc_jax.errors import UsageError, known
from vlc_jax.input_pipeline import benchmarks
from vlc_jax.input_pipeline.images import transforms
from vlc_jax.input_pipeline.record import Source, has_text_only
from vlc_jax.input_pipeline.tokenizers.tokenizer import Tokenizer
from vlc_jax.models.heads import Decoding
from vlc_jax.models.parameters import TOWERS
from vlc_jax.models.qwen3_vl import Qwen3VLTower
from vlc_jax.models.resnet import ResNet
from vlc_jax.setup import addresses, data, weights_config
from vlc_jax.setup.duration import MOST_STEPS
from vlc_jax.setup.model import abilities, configured_losses

LONGEST_NAME = 200  # bytes: most file systems have 255, and a hash may follow
LARGEST = 10**15  # no number of bytes, pairs or steps is larger, and int64 holds its products
# Rule -> (test, patterns of fields). A field that is not set (None) fits.
RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "at least 1": (  # first: a warmup may be computed from the steps
        lambda x: x >= 1,
        """steps examples batch_size sub_batches log_every eval.batch_size eval.every
        checkpoint.keep_last checkpoint.every input.image_size input.scenes.count
        input.scenes.captions text.context_length model.vocab_size model.logit_scale_max
        lora.rank""",
    ),
    "a whole number from 1 on": (
        lambda x: x >= 1 and x % 1 == 0,
        """evals.*.count evals.*.train_count evals.*.chunk losses.*.chunk
        model.image.width model.image.depth model.image.heads model.image.patch_size
        model.text.width model.text.depth model.text.heads""",
    ),
    "at least 0": (
        lambda x: x >= 0,
        """seed optimizer.learning_rate optimizer.warmup_steps optimizer.weight_decay
        optimizer.clip_norm input.preview input.hard_images input.*.count input.*.of_positives
        input.*.generators.* input.loader.* input.jitter.brightness eval.examples
        checkpoint.keep_every evals.*.seed watchdog.* model.epsilon model.*.epsilon""",
    ),
    "above 0": (
        lambda x: x > 0,
        "epochs eval.seconds optimizer.eps model.logit_scale_init lora.alpha",
    ),
    "from 0 to 1": (lambda x: 0 <= x <= 1, "input.max_bad_share input.noun_phrases.share"),
    "from 0 to below 1": (lambda x: 0 <= x < 1, "optimizer.b1 optimizer.b2 lora.dropout"),
    "from 0 to 0.5": (lambda x: 0 <= x <= 0.5, "input.jitter.hue"),
    f"at most {2**32 - 1:,}": (lambda x: x < 2**32, "seed"),
    f"at most {MOST_STEPS:,}": (  # of int32
        lambda x: x <= MOST_STEPS,
        "steps input.image_size text.context_length model.vocab_size model.*.width model.*.depth",
    ),
}
WISE_FT_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # default of config.interpolate.alpha


def check(config: ConfigDict, mode: str) -> None:
    """Raises UsageError for fields that are out of range or contradict each other.

    mode: as in `setup.resolve`.
    """
    check_forms(config)
    check_numbers(config)
    addresses.check(config)
    check_frozen(config)
    check_lora(config)
    interpolation_shares(config)
    if mode == "train" and config.interpolate.get("other"):
        raise UsageError("config.interpolate belongs to --mode eval: train first, then evaluate")
    # in training only: a run is evaluated without its losses, which may be another project's
    if mode in ("train", "plan"):
        losses.check(configured_losses(config), 1 + config.input.hard_images)
        check_pairs(config)
        if not weights_config.is_of_weights(config):  # else the weights set the tokenizer
            data.check_options(config)
    if mode != "weights":
        check_evals(config)


def check_evals(config: ConfigDict, abilities: evaluators.Abilities | None = None) -> None:
    """Raises UsageError for invalid options of protocols, before hours of training.

    abilities: of the model; None: not known yet.
    """
    for name, options in config.evals.items():
        try:
            protocol = benchmarks.protocol_of(options.get("reader", name))
            evaluators.check(protocol, options.to_dict(), abilities)
        except UsageError as error:
            raise UsageError(f"config.evals.{name}: {error}") from error


def check_benchmark_name(name: str) -> None:
    """Raises UsageError for a name that is no name of a folder of results."""
    # "@" separates results for other questions
    if not re.fullmatch(r"\w[\w.-]*", name) or len(name.encode()) > LONGEST_NAME:
        raise UsageError(
            f"config.evals: {name!r:.99} names a folder of results: at most {LONGEST_NAME} letters,"
            " digits, '_', '-' and '.'"
        )


def check_forms(config: ConfigDict) -> None:
    """Raises UsageError for a field that must be a table, pair or regular expression and is not."""
    for name in config.evals:
        check_benchmark_name(name)
    for table, of in (
        ("evals", "a benchmark, such as {'split': 'validation'}"),
        ("losses", "a loss, such as {'weight': 1.0}"),
    ):
        for name, options in config[table].items():
            if not isinstance(options, ConfigDict):
                raise UsageError(
                    f"config.{table}.{name} holds the options of {of}; got {options!r}"
                )
    if config.pretrain and "optimizer" not in config.pretrain:
        raise UsageError(
            "config.pretrain is the complete config of a run to train first, as of a config file; "
            f"got {config.pretrain.to_dict()}"
        )
    for side in ("negatives", "positives"):
        texts = config.input[side]
        for field in ("count", "generators", "fallback", "options"):
            if field not in texts:
                raise UsageError(
                    f"config.input.{side} has no {field!r}; set its fields one by one, as "
                    f"--config.input.{side}.count=1"
                )
    pairs = [("input.crop_scale", config.input.crop_scale, "(smallest area, largest area)")]
    pairs += [
        ("optimizer.learning_rate_multipliers", rule, "((regex, factor), ...)")
        for rule in config.optimizer.learning_rate_multipliers
    ]
    for name, pair, form in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise UsageError(f"config.{name} is {form}; got {pair!r}")
    guard = config.optimizer.spike_guard
    is_pair = len(guard) == 2 and all(type(number) in (int, float) for number in guard)
    if guard and not (is_pair and guard[0] > 1 and 1 <= guard[1] < 10**6 and guard[1] % 1 == 0):
        raise UsageError(
            "config.optimizer.spike_guard is (factor above 1, steps), such as (10.0, 10), or () "
            f"for none; got {guard!r}"
        )
    patterns = {
        "optimizer.decay_exclude": [config.optimizer.decay_exclude],
        "optimizer.learning_rate_multipliers": [
            regex for regex, _ in config.optimizer.learning_rate_multipliers
        ],
        "frozen": config.frozen,
        "lora.targets": [config.lora.targets],
        "lora.full": [config.lora.full],
    }
    for name, regexes in patterns.items():
        for regex in regexes:
            try:
                re.compile(regex)
            except (re.error, TypeError) as error:
                raise UsageError(
                    f"config.{name}: {regex!r} is no regular expression: {error}"
                ) from error


def check_numbers(config: ConfigDict) -> None:
    """Raises UsageError for a number out of its range, not finite, or too large for a device."""
    leaves = list(_leaves("", config.to_dict()))
    for rule, (fits, patterns) in RANGES.items():
        fields = re.compile("|".join(map(fnmatch.translate, patterns.split())))
        for name, value in leaves:
            # what is no number is refused by the type of the field or option
            if type(value) in (int, float) and fields.match(name) and not fits(value):
                shown = f"{value:,}" if isinstance(value, int) else repr(value)
                raise UsageError(f"config.{name} must be {rule}; got {shown}")
    for name, value in leaves:
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"config.{name} must be a finite number; got {value}")
        if isinstance(value, int) and abs(value) > LARGEST:
            raise UsageError(f"config.{name} must be at most {LARGEST:,}; got {value:,}")


def _leaves(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Path and value of each field; those of a list share the path of the list."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(f"{name}.{key}" if name else key, item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _leaves(name, item)
    else:
        yield name, value


def check_pairs(config: ConfigDict) -> None:
    """Raises UsageError for one pair at a time with a loss that contrasts pairs, and for `distill`
    of a part of the batch, whose sum it is."""
    for name, options in configured_losses(config).items():
        is_contrast = options.get("loss", name) in ("infonce", "sigmoid", "itc", "itm")
        least = 2 * config.sub_batches * options.get("rows", (0, 1))[1]
        if is_contrast and config.batch_size < least:
            raise UsageError(
                f"config.batch_size={config.batch_size} with sub_batches={config.sub_batches} has "
                f"no negatives for the loss {name}, which contrasts pairs; take at least "
                f"batch_size={least}"
            )
        parts = config.sub_batches * options.get("rows", (0, 1))[1]
        if options.get("loss", name) == "distill" and parts > 1:
            raise UsageError(
                f"the loss {name} is a sum over the whole batch, which has here "
                f"sub_batches={config.sub_batches} and rows={options.get('rows', (0, 1))}: take "
                "sub_batches=1 and no rows (config.microbatch saves memory)"
            )


def check_microbatch(config: ConfigDict, devices: int) -> None:
    """Raises UsageError unless config.microbatch, a multiple of `devices`, divides a sub-batch."""
    rows = config.microbatch
    if rows is None:
        return
    sub_batch = config.batch_size // config.sub_batches
    if rows < 1 or rows % devices or sub_batch % rows:
        fitting = [n for n in range(devices, sub_batch + 1, devices) if sub_batch % n == 0]
        smaller = [n for n in fitting if n <= rows]
        advice = f"use {max(smaller or fitting[:1])}" if fitting else "set it to None"
        raise UsageError(
            f"config.microbatch={rows} must be a multiple of {devices} devices and divide the "
            f"{sub_batch} rows of a sub-batch (batch_size / sub_batches); {advice}"
        )


def check_tensor(size: int, model: nn.Module) -> None:
    """Raises UsageError unless config.mesh.tensor=`size` can split the model's decoder."""
    if size == 1:
        return
    if not isinstance(model.head, Decoding):
        raise UsageError(
            f"config.mesh.tensor={size} splits the decoder of a captioner, and this model has none:"
            " set config.mesh.tensor=1; config.mesh.fsdp splits its parameters"
        )
    heads = model.head.language_model.groups
    if heads % size:
        fitting = [n for n in range(1, heads + 1) if heads % n == 0]
        raise UsageError(
            f"config.mesh.tensor={size} must divide the decoder's {heads} heads of keys and "
            f"values: take one of {', '.join(map(str, fitting))}"
        )


def check_frozen(config: ConfigDict) -> None:
    """Raises UsageError for frozen towers without weights, or a head without its towers."""
    has_weights = config.init_from or config.pretrain
    if any(rule.split("/")[0] in TOWERS for rule in config.frozen) and not has_weights:
        raise UsageError("config.frozen keeps pretrained towers as they are: set config.init_from")
    if config.input.source == "features" and not config.init_from:
        raise UsageError(
            "config.input.source=features reads features of frozen towers: set config.init_from to "
            "the same towers"
        )
    if config.head_from and (config.lora.targets or not has_weights):
        raise UsageError(
            "config.head_from is a head for the towers at config.init_from: set config.init_from, "
            "and leave config.lora.targets empty"
        )
    if config.frozen and config.lora.targets:
        raise UsageError(
            "config.lora freezes everything but config.lora.full: leave config.frozen empty"
        )


def check_lora(config: ConfigDict) -> None:
    """Raises UsageError for an adapter without weights, or with a teacher."""
    if not config.lora.targets:
        return
    if losses.teacher_decay(configured_losses(config)) is not None:
        raise UsageError(
            f"the teacher of the losses {', '.join(losses.TEACHERS)} averages parameters, and an "
            "average of the factors of an adapter is no average of its matrices: set "
            "config.lora.targets='' or leave out the losses"
        )
    if not (config.init_from or config.pretrain):
        raise UsageError("config.lora adapts pretrained weights: set config.init_from")


def interpolation_shares(config: ConfigDict) -> tuple[float, ...]:
    """The shares config.interpolate.alpha. Raises UsageError for values outside [0, 1]."""
    for name in config.interpolate:
        known("field of config.interpolate", name, ("other", "alpha"))
    shares = config.interpolate.get("alpha", WISE_FT_SHARES)
    is_list = isinstance(shares, tuple | list) and len(shares) > 0
    if not is_list or not all(isinstance(x, int | float) and 0 <= x <= 1 for x in shares):
        raise UsageError(f"config.interpolate.alpha lists shares from 0 to 1; got {shares!r}")
    return tuple(shares)


def check_model(config: ConfigDict, mode: str, tokenizer: Tokenizer, model: nn.Module) -> None:
    """Raises UsageError if the tokenizer does not fit the model, or if a benchmark needs an ability
    that the model lacks. mode: as in `setup.resolve`."""
    if not tokenizer.width:
        check_vocabulary(tokenizer, model.text.vocab_size)
    if mode != "weights":
        check_evals(config, abilities(model, tokenizer))
    check_functional_words(config, model)
    check_text_lengths(config, model)
    check_question(config, model)
    check_crop(config, mode, model)
    if mode == "train" and not config.init_from:
        warn_of_cut_images(model.image)
    if mode == "train" and isinstance(model.image, ResNet) and not config.init_from:
        raise UsageError(
            f"the batch norm of {config.model.variant} has stored statistics, which training keeps:"
            " set config.init_from to weights, or train a vision transformer from scratch"
        )


def warn_of_cut_images(tower: nn.Module) -> None:
    """Warns of images that patches do not cover, as SigLIP's of 384 pixels by patches of 14."""
    side, patch = tower.image_size, getattr(tower, "patch_size", None)
    if patch and (rest := side % patch):
        logging.warning(
            "config.input.image_size=%d is no multiple of the patches' %d pixels: the last %d rows "
            "and columns of every image are not read; take %d or %d",
            side, patch, rest, side - rest, side - rest + patch,
        )  # fmt: skip


def check_crop(config: ConfigDict, mode: str, model: nn.Module) -> None:
    """Raises UsageError if images are made into mosaics and the tower takes squares, or vice versa.

    mode: as in `setup.resolve`; the crop of training is read by training alone.
    """
    own = None
    if isinstance(model.image, Qwen3VLTower):
        own = transforms.NATIVE
    elif getattr(model.image, "position_grid", None):
        own = transforms.NAFLEX
    crops = {"input.eval_crop": data.image_transform(config, is_training=False).crop}
    if mode == "train" and config.input.source != "features":
        crops["input.crop"] = config.input.crop
    for field, crop in crops.items():
        if (crop if crop in transforms.MOSAICS else None) != own:
            rule = (
                f"any aspect ratio: set it to {own}" if own else f"one shape: it cannot be {crop}"
            )
            raise UsageError(
                f"config.{field} is {crop}, and the image tower of {config.model.variant} takes "
                f"images of {rule}"
            )


def check_text_lengths(config: ConfigDict, model: nn.Module) -> None:
    """Raises UsageError for invalid config.text.lengths, or for a model that reads padding."""
    lengths, longest = list(config.text.lengths), config.text.context_length
    if not lengths:
        return
    if lengths != sorted(set(lengths)) or not 1 < lengths[0] <= lengths[-1] < longest:
        raise UsageError(
            f"config.text.lengths ascend, from 2 to below config.text.context_length={longest}; "
            f"got {config.text.lengths}"
        )
    tokens = model.head.requests[1].tokens
    if config.input.source == "features" or not (
        tokens == "ids" or (tokens == "none" and model.text.takes_shorter)
    ):
        raise UsageError(
            "config.text.lengths leave out padding, which this model or its stored features read: "
            "set them to ()"
        )


def check_question(config: ConfigDict, model: nn.Module) -> None:
    """Raises UsageError for config.input.question with a head that reads no question."""
    question = config.input.question
    if question and not isinstance(model.head, Decoding):
        raise UsageError(
            f"config.input.question={question!r} is for a head that reads it behind the image: set "
            "config.model.name='captioner' or 'vlm2vec', or no question"
        )


def check_text_only(
    config: ConfigDict, source: Source, tokenizer: Tokenizer, model: nn.Module
) -> None:
    """Raises UsageError for records without an image if the model cannot read them.

    A captioner reads them without a question; an embedder (vlm2vec) needs a question for records
    with and without an image.
    """
    if not has_text_only(source):
        return
    leave_out = (
        "leave them out (config.input.source_options.text_only=False, or shards prepared without "
        "--text-only)"
    )
    if not isinstance(model.head, Decoding):
        raise UsageError(
            "the training data have records without an image, which only captioner and vlm2vec "
            f"read: {leave_out}"
        )
    question, text_only = config.input.question, config.input.text_only_question
    is_embedder = all(model.head.reads_pooled)
    if is_embedder != bool(question) or is_embedder != bool(text_only):
        raise UsageError(
            "records without an image are queries of an embedder (vlm2vec), which asks a question "
            "of every record (config.input.question and text_only_question), and texts that a "
            f"captioner reads without; got {question!r}, {text_only!r}: set them, or {leave_out}"
        )
    if not is_embedder and model.head.prefix and not tokenizer.texts.before:
        raise UsageError(
            "a conversation without an image begins with the text that the head reads before an "
            f"image: write config.model.head.prefix as a text, or {leave_out}"
        )


def check_functional_words(config: ConfigDict, model: nn.Module) -> None:
    """Raises UsageError unless the head has a vector for each of config.text.functional_words."""
    num_words = len(config.text.functional_words.words)
    num_vectors = model.head.num_functional_words
    if num_words != num_vectors:
        raise UsageError(
            f"config.text.functional_words.words are {num_words}, the head {config.model.name} has "
            f"{num_vectors} vectors: set config.model.head.num_functional_words to {num_words} "
            "(only dcsm reads them)"
        )


def check_vocabulary(tokenizer: Tokenizer, vocab_size: int) -> None:
    """Raises UsageError if an id of the tokenizer lies beyond the model's embedding table."""
    needed = max(tokenizer.vocab_size, tokenizer.pad_id + 1, tokenizer.eos_id + 1)
    if needed > vocab_size:
        raise UsageError(
            f"the tokenizer has {tokenizer.vocab_size} ids (pad {tokenizer.pad_id}, end-of-text "
            f"{tokenizer.eos_id}) but the model embeds {vocab_size}; use the model's own tokenizer "
            f"or set config.model.vocab_size={needed}"
        )

"""A config becomes the things of a run: data, tokenizer, model, optimizer, sharded state.

Only this module, train, evaluate, pretrained, specification and the tools see a ConfigDict;
everything they call gets keyword arguments.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, UInt8
from ml_collections import ConfigDict

import input_pipeline
from input_pipeline import image as image_ops
from input_pipeline.record import Source
from vlc_jax import consistency, losses, models, optimizer, sharding
from vlc_jax.errors import UsageError, known
from vlc_jax.models import flops, lora

# What of config.model features of an image depend on, and those of texts besides.
OF_IMAGE = ("variant", "activation", "epsilon", "dtype", "image")
OF_TEXT = ("vocab_size", "text")


class Task(NamedTuple):
    """What training and evaluation share."""

    mesh: Mesh
    tokenizer: input_pipeline.Tokenizer | input_pipeline.TextVectors
    model: nn.Module
    normalise: Callable[[Array], Array]


class State(NamedTuple):
    """All that a run must remember between two steps; `step` counts finished updates.

    `params` is what is trained: all parameters, those that are not frozen, or an adapter
    (`models.lora`) of frozen ones.
    """

    step: Array
    params: Any
    opt_state: Any


def task(config: ConfigDict) -> Task:
    """Raises UsageError when tokenizer, model, images, mesh and batch do not fit together."""
    sharding.require_platform(config.platform)
    consistency.check_positive(config)
    consistency.check_frozen(config)
    mesh = sharding.make_mesh(**config.mesh, batch_size=config.batch_size)
    words = tokenizer(config)
    net = model(config, words)
    if not isinstance(words, input_pipeline.TextVectors):
        consistency.check_vocabulary(words, net.text.vocab_size)
    consistency.check_functional_words(config, net)
    return Task(mesh, words, net, normaliser(config.input.normalisation))


def tokenizer(config: ConfigDict) -> input_pipeline.Tokenizer | input_pipeline.TextVectors:
    """The configured tokenizer, or what reads vectors of texts from a file."""
    name, functional = config.text.tokenizer, config.text.functional_words
    if name == "vectors" and functional.words:
        raise UsageError("config.text.functional_words are tokens, and a vector of a text has none")
    with usage_errors():
        plain = input_pipeline.make_tokenizer(
            name, config.text.context_length, **tokenizer_options(config)
        )
        if not functional.words:
            return plain
        return input_pipeline.FunctionalWordTokenizer(plain, **functional)


def model(
    config: ConfigDict, words: input_pipeline.Tokenizer | input_pipeline.TextVectors
) -> nn.Module:
    """The configured model for texts that are given as `words` gives them."""
    overrides = {k: value for k, value in config.model.to_dict().items() if value is not None}
    if isinstance(words, input_pipeline.TextVectors):
        of_text = {"vector_width": words.width}
    else:
        of_text = {"context_length": config.text.context_length, "eos_id": words.eos_id}
    return models.build(**overrides, **of_text, image_size=config.input.image_size)


def source(config: ConfigDict, split: str) -> Source:
    """The records of one split of the configured source."""
    with usage_errors():
        options = source_options(config)
        if split == "train" and config.input.exclude:
            options["exclude"] = config.input.exclude
        return input_pipeline.make_source(options.pop("source"), split, **options)


def source_options(config: ConfigDict) -> dict[str, Any]:
    """The configured source's name and its own options."""
    name = config.input.source
    return {"source": name, **_options(config.input, name, config.input.source_options)}


def tokenizer_options(config: ConfigDict) -> dict[str, Any]:
    """The options of the configured tokenizer."""
    return _options(config.text, config.text.tokenizer, config.text.tokenizer_options)


def image_transform(
    config: ConfigDict, is_training: bool
) -> image_ops.ImageTransform | input_pipeline.FeatureTransform:
    """Random crops belong to training; evaluation centres them, unless eval_crop says otherwise.

    Of stored features there are no pixels in training.
    """
    if is_training and config.input.source == "features":
        return input_pipeline.FeatureTransform()
    crop = config.input.crop
    if not is_training:
        crop = config.input.eval_crop or ("centre" if crop == "random_resized" else crop)
        known("crop of evaluation", crop, ("centre", "none"))
    with usage_errors():
        return image_ops.ImageTransform(
            size=config.input.image_size,
            crop=crop,
            scale=tuple(config.input.crop_scale),
            **(config.input.jitter if is_training else {}),
            interpolation=config.input.interpolation,
        )


def feature_facts(config: ConfigDict, task: Task) -> dict[str, Any]:
    """All that stored features of the frozen towers depend on beside weights and records: of the
    text nothing, where only the image tower is frozen.
    """
    image, text = task.model.head.requests
    fields = config.model.to_dict()
    facts = {
        "frozen": sorted(config.frozen),
        "image_size": config.input.image_size,
        "crop": image_transform(config, is_training=False).crop,
        "interpolation": config.input.interpolation,
        "normalisation": config.input.normalisation,
        "model": {key: fields[key] for key in OF_IMAGE},
        "image": image._asdict(),
    }
    if "text" in config.frozen:
        facts["model"] |= {key: fields[key] for key in OF_TEXT}
        facts["tokenizer"] = task.tokenizer.fingerprint
        facts["context_length"] = config.text.context_length
        facts["text"] = text._asdict()
    return facts


def check_features(source: Source, facts: dict[str, Any]) -> None:
    """Raises UsageError naming how stored features differ from what the config's towers give."""
    held, wanted = source.facts, json.loads(json.dumps(facts))
    differing = [key for key in wanted if held.get(key) != wanted[key]]
    if differing:
        lines = "; ".join(f"{key} {held.get(key)}, not {wanted[key]}" for key in differing)
        raise UsageError(
            f"the features at config.input.features.path are of other towers or pixels: {lines}; "
            "store them again (python -m vlc_jax.tools.cache_features) or change the config"
        )


def normaliser(name: str) -> Callable[[Array], Array]:
    """uint8 pixels -> float32 with the named mean and standard deviation, on the device."""
    known("normalisation", name, image_ops.NORMALISATIONS)
    mean, std = (np.asarray(v, np.float32) for v in image_ops.NORMALISATIONS[name])
    scale, shift = (1 / (255 * std)).reshape(1, 1, 1, 3), (-mean / std).reshape(1, 1, 1, 3)

    def normalise(image: UInt8[Array, "b h w 3"]) -> Float[Array, "b h w 3"]:
        return image.astype(jnp.float32) * scale + shift

    return normalise


def hard_texts(config: ConfigDict) -> dict[str, input_pipeline.HardTexts]:
    """What every caption gets: "negatives" and "positives", their generators made."""
    with usage_errors():
        return {
            side: input_pipeline.make_hard_texts(side, **_text_options(config, side))
            for side in ("negatives", "positives")
        }


def _text_options(config: ConfigDict, side: str) -> dict[str, Any]:
    """Generators of the scenes are made for the world that the pictures are of."""
    asked, scenes = config.input[side].to_dict(), config.input.scenes
    world = {"world": scenes.world, "world_options": scenes.world_options.to_dict()}
    of_scenes = [kind for kind in asked["generators"] if kind.startswith("scenes_")]
    options = {kind: world | asked["options"].get(kind, {}) for kind in of_scenes}
    return asked | {"options": asked["options"] | options}


def noun_phrases(config: ConfigDict) -> input_pipeline.NounPhrases | None:
    """What becomes of captions at each reading; None where the share is 0."""
    with usage_errors():
        options = config.input.noun_phrases
        return input_pipeline.NounPhrases(**options) if options.share else None


def records_per_step(config: ConfigDict) -> int:
    """Records of the epoch in a batch, whose other rows are their hard images."""
    group = 1 + config.input.hard_images
    if config.blocks < 1 or config.batch_size // max(group, 1) % config.blocks:
        raise UsageError(
            f"config.batch_size={config.batch_size} must be a multiple of config.blocks="
            f"{config.blocks} times the {group} rows of an example (1 + input.hard_images)"
        )
    if group < 1 or config.batch_size % group:
        raise UsageError(
            f"config.batch_size={config.batch_size} is not divisible by 1 + input.hard_images"
            f" = {group}: hard images are rows of the batch"
        )
    return config.batch_size // group


def total_steps(config: ConfigDict, examples: int) -> int:
    """Steps of the whole run; the one place where epochs and examples become steps.

    examples: records of the source. Hard images do not count.
    """
    given = {k: config[k] for k in ("steps", "epochs", "examples") if config[k] is not None}
    if len(given) != 1:
        raise UsageError(f"set exactly one of config.steps, .epochs, .examples; got {given}")
    ((unit, value),) = given.items()
    records = records_per_step(config)
    seen = {"steps": value * records, "epochs": value * examples, "examples": value}[unit]
    steps = int(seen // records)
    if steps < 1:
        raise UsageError(f"config.{unit}={value} is less than one step of {records} records")
    return steps


def transformation(config: ConfigDict, params: Any, steps: int) -> optax.GradientTransformation:
    """The optimizer of the config for `params` (or their shapes), with its schedule inside."""
    c = config.optimizer
    return optimizer.make(
        params,
        rate=learning_rate(config, steps),
        weight_decay=c.weight_decay,
        b1=c.b1,
        b2=c.b2,
        eps=c.eps,
        clip_norm=c.clip_norm,
        decay_exclude=c.decay_exclude,
        rules=tuple((regex, factor) for regex, factor in c.multipliers),
    )


def learning_rate(config: ConfigDict, steps: int) -> Callable[[Any], Array]:
    """The schedule of the config over `steps`."""
    c = config.optimizer
    return optimizer.schedule(
        c.schedule, c.learning_rate, steps, c.warmup_steps, c.end_learning_rate, c.timescale
    )


def init_params(config: ConfigDict, model: nn.Module) -> Callable[[], Any]:
    """A function without arguments that initialises the parameters from the config's seed."""
    return lambda: models.init(model, jax.random.key(config.seed))


def init_state(
    config: ConfigDict, model: nn.Module, steps: int, frozen: Any
) -> Callable[[Any], State]:
    """A function of the frozen parameters that makes the state before the first of `steps` steps.

    Frozen ones are needed when an adapter is trained on them.
    """
    init = init_params(config, model)

    def trained(frozen: Any) -> Any:
        if not config.lora.targets:
            return {name: part for name, part in init().items() if name not in config.frozen}
        options = {key: value for key, value in config.lora.items() if key != "alpha"}
        return lora.init(jax.random.key(config.seed), frozen, **options)

    tx = transformation(config, jax.eval_shape(trained, frozen), steps)

    def make(frozen: Any) -> State:
        params = trained(frozen)
        return State(jnp.zeros((), jnp.int32), params, tx.init(params))

    return make


def merged(config: ConfigDict, frozen: Any, params: Any) -> Any:
    """The parameters of the model, from what is frozen and what is trained."""
    if config.lora.targets:
        return lora.merge(frozen, params, config.lora.alpha)
    return {**frozen, **params}


def count_parameters(config: ConfigDict, frozen: Any, state: State) -> dict[str, int]:
    """Numbers of parameters of the towers, in total, and of those that are trained."""
    full = jax.eval_shape(partial(merged, config), frozen, state.params)
    factors = optimizer.multipliers(state.params, config.optimizer.multipliers)
    sizes = jax.tree.map(lambda x, factor: x.size if factor else 0, state.params, factors)
    return {**models.parameter_counts(full), "trained": sum(jax.tree.leaves(sizes))}


def flops_per_example(config: ConfigDict, model: nn.Module) -> int:
    """FLOPs of one row of the batch, all its texts included; a frozen tower goes forward only, and
    one whose features are stored does not run."""
    negatives, positives = config.input.negatives, config.input.positives
    of_negatives = negatives.count + negatives.of_positives * positives.count
    texts = 1 + positives.count + of_negatives
    block = config.batch_size // config.blocks
    pairs = block
    with_all_images = losses.contrasted_with_all_images(config.losses)
    for kind, count in (("negative", of_negatives), ("positive", positives.count)):
        pairs += count * (block if kind in with_all_images else 1)
    frozen = list(config.frozen)
    if config.input.source == "features":  # of frozen towers, which are not run
        of_text = 0 if "text" in frozen else 3 * texts * flops.text_tower(model.text)
        return of_text + flops.head(model, pairs=pairs, texts=texts, frozen=frozen)
    if not config.lora.targets:
        params = jax.eval_shape(init_params(config, model))
        trained = {name: part for name, part in params.items() if name not in frozen}
        factors = optimizer.multipliers(trained, config.optimizer.multipliers)
        towers = [name for name in ("image", "text") if name in trained]
        frozen += [name for name in towers if not any(jax.tree.leaves(factors[name]))]
    of_head = flops.head(model, pairs=pairs, texts=texts, frozen=frozen)
    return flops.train_step(model, texts=texts, frozen=frozen) + of_head


def state_shapes(mesh: Mesh, init: Callable[..., Any], *args: Any) -> Any:
    """Shapes, dtypes and shardings of what `init` makes of `args`, nothing allocated."""
    shapes = jax.eval_shape(init, *args)
    return jax.tree.map(
        lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where),
        shapes,
        sharding.state_shardings(mesh, shapes),
    )


@contextmanager
def usage_errors() -> Iterator[None]:
    """A ValueError of the input pipeline, which knows no exit codes, becomes a UsageError."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from error


def _options(group: ConfigDict, name: str, further: ConfigDict) -> dict[str, Any]:
    """The fields of a source or tokenizer in the config, and further options; None is unset."""
    listed = group[name].to_dict() if name in group else {}
    options = {**listed, **further.to_dict()}
    return {key: value for key, value in options.items() if value is not None}

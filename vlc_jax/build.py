"""A config becomes the things of a run: data, tokenizer, model, optimizer, sharded state.

Only this module, train and evaluate see a ConfigDict; everything they call gets keyword arguments.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
from vlc_jax import models, optimizer, sharding, weights
from vlc_jax.errors import UsageError, known

# Rows of an embedding table beyond the tokenizer's ids: tables are padded to round sizes.
MAX_SPARE_ROWS = 1024
# Share of tokens that may differ: the forms of one tokenizer name some special tokens otherwise.
MAX_DIFFERING = 0.01


class Task(NamedTuple):
    """What training and evaluation share."""

    mesh: Mesh
    tokenizer: input_pipeline.Tokenizer
    model: nn.Module
    normalise: Callable[[Array], Array]


class State(NamedTuple):
    """All that a run must remember between two steps; `step` counts finished updates."""

    step: Array
    params: Any
    opt_state: Any


def task(config: ConfigDict) -> Task:
    """Raises UsageError when tokenizer, model, images, mesh and batch do not fit together."""
    sharding.require_platform(config.platform)
    check_positive(config)
    mesh = sharding.make_mesh(**config.mesh, batch_size=config.batch_size)
    name = config.text.tokenizer
    with usage_errors():
        tokenizer = input_pipeline.make_tokenizer(
            name, config.text.context_length, **_options(config.text, name)
        )
    overrides = {key: value for key, value in config.model.items() if value is not None}
    model = models.build(
        **overrides,
        image_size=config.input.image_size,
        context_length=config.text.context_length,
        eos_id=tokenizer.eos_id,
    )
    check_vocabulary(tokenizer, model.text.vocab_size)
    return Task(mesh, tokenizer, model, normaliser(config.input.normalisation))


def check_positive(config: ConfigDict) -> None:
    """Raises UsageError for a count that must be at least 1."""
    counts = {
        "batch_size": config.batch_size,
        "log_every": config.log_every,
        "eval.batch_size": config.eval.batch_size,
        "checkpoint.keep_last": config.checkpoint.keep_last,
    }
    for name, value in counts.items():
        if value < 1:
            raise UsageError(f"config.{name} must be at least 1; got {value}")


def check_vocabulary(tokenizer: input_pipeline.Tokenizer, vocab_size: int) -> None:
    """Raises UsageError if any id of the tokenizer lies beyond the model's embedding table."""
    needed = max(tokenizer.vocab_size, tokenizer.pad_id + 1, tokenizer.eos_id + 1)
    if needed > vocab_size:
        raise UsageError(
            f"the tokenizer has {tokenizer.vocab_size} ids (pad {tokenizer.pad_id}, end-of-text "
            f"{tokenizer.eos_id}) but the model embeds {vocab_size}; use the model's own tokenizer "
            f"or set config.model.vocab_size={needed}"
        )


def source(config: ConfigDict, split: str) -> Source:
    """The records of one split of the configured source."""
    with usage_errors():
        options = source_options(config)
        return input_pipeline.make_source(options.pop("source"), split, **options)


def source_options(config: ConfigDict) -> dict[str, Any]:
    """The configured source's name and its own options."""
    name = config.input.source
    return {"source": name, **_options(config.input, name)}


def image_transform(config: ConfigDict, is_training: bool) -> image_ops.ImageTransform:
    """Random crops belong to training; evaluation centres them."""
    crop = config.input.crop
    if crop == "random_resized" and not is_training:
        crop = "centre"
    with usage_errors():
        return image_ops.ImageTransform(
            size=config.input.image_size,
            crop=crop,
            scale=tuple(config.input.crop_scale),
            interpolation=config.input.interpolation,
        )


def normaliser(name: str) -> Callable[[Array], Array]:
    """uint8 pixels -> float32 with the named mean and standard deviation, on the device."""
    known("normalisation", name, image_ops.NORMALISATIONS)
    mean, std = (np.asarray(v, np.float32) for v in image_ops.NORMALISATIONS[name])
    scale, shift = (1 / (255 * std)).reshape(1, 1, 1, 3), (-mean / std).reshape(1, 1, 1, 3)

    def normalise(image: UInt8[Array, "b h w 3"]) -> Float[Array, "b h w 3"]:
        return image.astype(jnp.float32) * scale + shift

    return normalise


def total_steps(config: ConfigDict, examples: int) -> int:
    """Steps of the whole run; the one place where epochs and examples become steps."""
    given = {k: config[k] for k in ("steps", "epochs", "examples") if config[k] is not None}
    if len(given) != 1:
        raise UsageError(f"set exactly one of config.steps, .epochs, .examples; got {given}")
    ((unit, value),) = given.items()
    pairs = {"steps": value * config.batch_size, "epochs": value * examples, "examples": value}[
        unit
    ]
    steps = int(pairs // config.batch_size)
    if steps < 1:
        raise UsageError(
            f"config.{unit}={value} is less than one step of batch_size {config.batch_size}"
        )
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


def init_state(config: ConfigDict, model: nn.Module, steps: int) -> Callable[[], State]:
    """A function without arguments that makes the state before the first of `steps` steps."""
    init = init_params(config, model)
    tx = transformation(config, jax.eval_shape(init), steps)

    def make() -> State:
        params = init()
        return State(jnp.zeros((), jnp.int32), params, tx.init(params))

    return make


def imported_params(config: ConfigDict, task: Task, shapes: Any) -> Any:
    """The parameters at config.weights.path, numpy float32, as a tree like `shapes`.

    Raises UsageError if what the files say (activation, epsilon, pixels, tokenizer) is not what
    the config has, WeightsError if the numbers do not fit the model.
    """
    check_tokenizer(config, task)
    check_facts(config, task, weights.facts.read(config.weights.path))
    params, _ = weights.load(config.weights.path, shapes, architecture(task.model))
    return params


def architecture(model: nn.Module) -> weights.Architecture:
    """What formats of weights must know of a model beside its shapes."""
    return weights.Architecture(
        patch_size=model.image.patch_size or 0,
        heads={"image": model.image.heads, "text": model.text.heads},
        may_cut_text=model.text.is_causal and model.text.pooling == "eos",
    )


def check_facts(config: ConfigDict, task: Task, facts: Mapping[str, Any]) -> None:
    """Raises UsageError naming each fact of the weights that the config contradicts, and where it
    is set.
    """
    image, text = task.model.image, task.model.text
    mean, std = image_ops.NORMALISATIONS[config.input.normalisation]
    ours = {
        "image_activation": image.activation,
        "text_activation": text.activation,
        "image_epsilon": image.epsilon,
        "text_epsilon": text.epsilon,
        "mean": mean,
        "std": std,
        "interpolation": config.input.interpolation,
        "crop": image_transform(config, is_training=False).crop,
        "context_length": text.context_length,
        "vocab_size": text.vocab_size,
        **text_facts(task),
    }
    if architecture(task.model).may_cut_text and "context_length" in facts:
        ours["context_length"] = max(ours["context_length"], facts["context_length"])
    differing = [
        f"{name} is {facts[name]}, here {ours[name]} ({_field(config, name)})"
        for name in ours.keys() & facts.keys()
        if not _is_same(facts[name], ours[name])
    ]
    if differing:
        raise UsageError(
            f"the files beside {config.weights.path} say that {'; '.join(sorted(differing))}: set "
            "the fields in brackets accordingly"
        )


def _field(config: ConfigDict, fact: str) -> str:
    """Where a fact is set; of a tokenizer without that option, the choice of another one."""
    field, name = weights.facts.FIELDS[fact], config.text.tokenizer
    if "{}" in field and field.rpartition(".")[2] not in config.text[name]:
        return "config.text.tokenizer"
    return field.format(name)


def text_facts(task: Task) -> dict[str, Any]:
    """What the tokenizer does to case, punctuation, ends and padding, seen on its ids.

    The padding only where the text tower reads it (SigLIP).
    """
    tokenizer, facts = task.tokenizer, {"padding_side": "right"}
    plain, capital, points = tokenizer(["a red dog", "A RED Dog", "a red, dog!"])
    facts["lower_case"] = bool((plain == capital).all())
    facts["strips_punctuation"] = bool((plain == points).all())
    names = {index: token for token, index in tokenizer.vocabulary().items()}
    if tokenizer.eos_id in names:
        facts["eos_token"] = names[tokenizer.eos_id]
    if tokenizer.pad_id in names and not architecture(task.model).may_cut_text:
        facts["pad_token"] = names[tokenizer.pad_id]
    return facts


def check_tokenizer(config: ConfigDict, task: Task) -> None:
    """Raises UsageError if the tokenizer is not the one that the imported weights were trained
    with: most of their rows have no id, or the files beside them number the tokens otherwise.
    """
    path, tokenizer, rows = config.weights.path, task.tokenizer, task.model.text.vocab_size
    rule = f"use the tokenizer that belongs to {path} (config.text.tokenizer, and its path)"
    if rows - tokenizer.vocab_size > MAX_SPARE_ROWS:
        raise UsageError(
            f"the weights embed {rows} tokens, tokenizer {config.text.tokenizer!r} has "
            f"{tokenizer.vocab_size}; {rule}"
        )
    folder = weights.facts.folder(path)
    with usage_errors():
        theirs = input_pipeline.folder_vocabulary(folder) if folder else None
    ours = tokenizer.vocabulary()
    differing = [token for token, index in (theirs or {}).items() if ours.get(token) != index]
    if theirs and len(differing) > MAX_DIFFERING * len(theirs):
        token = sorted(differing, key=theirs.__getitem__)[len(differing) // 2]
        raise UsageError(
            f"tokenizer {config.text.tokenizer!r} is not the one in {folder}: {len(differing)} of "
            f"{len(theirs)} tokens differ, as {token!r} ({theirs[token]}, here "
            f"{ours.get(token, 'none')}); {rule}"
        )


def _is_same(a: Any, b: Any) -> bool:
    return a == b if isinstance(a, str) else bool(np.allclose(a, b, rtol=1e-4, atol=0))


def param_shapes(config: ConfigDict, task: Task) -> Any:
    """Shapes, dtypes and shardings of the parameters alone."""
    return state_shapes(task.mesh, init_params(config, task.model))


def state_shapes(mesh: Mesh, init: Callable[[], Any]) -> Any:
    """Shapes, dtypes and shardings of the state, nothing allocated."""
    shapes = jax.eval_shape(init)
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


def _options(group: ConfigDict, name: str) -> dict[str, Any]:
    """What is set of the sub-dict of a chosen source or tokenizer; its own table knows names."""
    if name not in group:
        return {}
    return {key: value for key, value in group[name].items() if value is not None}

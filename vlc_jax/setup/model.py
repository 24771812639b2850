"""Builds a run's model, its split into trained and frozen parameters, and its optimisation."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt8
from ml_collections import ConfigDict

from vlc_jax import losses, models
from vlc_jax.errors import UsageError, known, usage_errors
from vlc_jax.evaluators import Abilities
from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.tokenizers.tokenizer import Tokenizer
from vlc_jax.models import attention, heads, text
from vlc_jax.models.parameters import TOWERS, Parameters
from vlc_jax.models.tower import Tower
from vlc_jax.setup import optimizer
from vlc_jax.types.setup import Optimization

Schedule = Callable[[Any], Array]


def make_model(config: ConfigDict, tokenizer: Tokenizer) -> nn.Module:
    """The model with the configured towers and head, for texts of `tokenizer`."""
    overrides = {k: value for k, value in config.model.to_dict().items() if value is not None}
    # no fields of the model: make_optimization and with_attention read them
    for name in ("logit_scale_max", "attention"):
        overrides.pop(name, None)
    for name in ("prefix", "suffix"):
        if isinstance(text_ := overrides["head"].get(name), str):
            with usage_errors():
                overrides["head"][name] = tokenizer.before_image(text_)
    if tokenizer.width:
        text_options = {"vector_width": tokenizer.width}
    else:
        text_options = {"context_length": config.text.context_length, "eos_id": tokenizer.eos_id}
    return models.build(**overrides, **text_options, image_size=config.input.image_size)


def with_attention(model: nn.Module, implementation: str, platform: str) -> nn.Module:
    """The model with the attention implementation for a platform.

    implementation: config.model.attention, where "auto" is resolved per tower. Logs the choice of
    each tower and its reason. Raises UsageError for "cudnn" where it is not supported.
    """
    choices = {}
    for name in TOWERS:
        tower = getattr(model, name)
        if isinstance(tower, Tower):  # a tower of precomputed vectors has no attention
            choices[name] = _choose_attention(tower, implementation, platform)
    described = (
        f"{name} {choice.implementation} ({choice.reason})" for name, choice in choices.items()
    )
    logging.info("attention: %s", ", ".join(described))
    changed = {
        name: getattr(model, name).clone(attention=choice.implementation)
        for name, choice in choices.items()
    }
    return model.clone(**changed)


def _choose_attention(tower: Tower, implementation: str, platform: str) -> attention.Choice:
    is_text = isinstance(tower, text.TextTower)
    is_causal = is_text and tower.is_causal
    length = tower.context_length if is_text else tower.grid**2 + tower.has_class_token
    kind = {"dtype": jnp.dtype(tower.dtype).name, "head_dim": tower.width // tower.heads}
    mask = "causal" if is_causal else "none"
    has_padding = tower.padding_mask if is_text else getattr(tower, "position_grid", None)
    return attention.choose(
        implementation,
        platform=platform,
        mask="lengths" if has_padding else mask,
        probe=partial(attention.failure, "cudnn", length=length, is_causal=is_causal, **kind),
        **kind,
    )


def abilities(model: nn.Module, tokenizer: Tokenizer) -> Abilities:
    """Abilities of the model, for benchmarks that ask questions or correct embeddings.

    It writes text if its head decodes and the tokenizer turns ids into text. It scores answers if
    the tokenizer marks answer tokens and the head reads the marks.
    """
    return Abilities(
        writes=isinstance(model.head, heads.Generating) and hasattr(tokenizer, "decode"),
        scores_answers=tokenizer.reads_conversations and model.head.reads_marks,
        is_cosine=all(model.head.reads_pooled),
    )


def normaliser(name: str) -> Callable[[Array], Array]:
    """uint8 pixels -> float32 with the named mean and standard deviation, on the device."""
    known("normalisation", name, image_ops.NORMALISATIONS)
    mean, std = (np.asarray(v, np.float32) for v in image_ops.NORMALISATIONS[name])
    # one product and one sum per pixel, instead of (x / 255 - mean) / std
    scale, shift = 1 / (255 * std), -mean / std

    # also of float pixels: a gradient with respect to the pixels needs them
    def normalise(
        image: UInt8[Array, "*b h w 3"] | Float[Array, "*b h w 3"],
    ) -> Float[Array, "*b h w 3"]:
        axes = (*(1,) * (image.ndim - 1), 3)  # crops have an axis more
        return image.astype(jnp.float32) * scale.reshape(axes) + shift.reshape(axes)

    return normalise


def make_parameters(config: ConfigDict, model: nn.Module) -> Parameters:
    """The split into trained and frozen parameters, by config.frozen and config.lora.

    Raises UsageError if a rule of config.frozen matches no parameter, or if all are frozen.
    """
    lora = config.lora.to_dict() if config.lora.targets else None
    shapes = jax.eval_shape(partial(models.init, model), jax.random.key(config.seed))
    parameters = Parameters(model, config.seed, shapes, tuple(config.frozen), lora)
    parameters.check_frozen()
    return parameters


def make_optimization(config: ConfigDict, parameters: Parameters, steps: int) -> Optimization:
    """Optimizer, schedule over `steps`, and losses of the config.

    Raises UsageError for a warmup longer than the run, for a learning rate multiplier that
    matches no parameter, and for losses over prototypes of a model without them.
    """
    shapes = parameters.trained_shapes()
    schedule = learning_rate(config, steps)
    c, terms = config.optimizer, configured_losses(config)
    adamw = optimizer.AdamW(**{name: c[name] for name in optimizer.AdamW._fields})
    hard = config.input.negatives
    negatives = hard.count + hard.of_positives * config.input.positives.count
    return Optimization(
        optimizer=optimizer.make(shapes, schedule, adamw),
        schedule=schedule,
        losses=terms,
        sub_batches=config.sub_batches,
        rows_per_example=1 + config.input.hard_images,
        microbatch=config.microbatch,
        logit_scale_max=config.model.logit_scale_max,
        seed=config.seed,
        spike_guard=tuple(c.spike_guard),
        teacher_decay=losses.teacher_decay(terms),
        num_thresholds=negatives if losses.entry_of("cross_modal_rank", terms) else 0,
        centres=_centres(terms, parameters.model.head),
    )


def _centres(terms: dict[str, dict[str, Any]], head: nn.Module) -> dict[str, int]:
    centred = [name for name in losses.CENTRED if losses.entry_of(name, terms) is not None]
    if not centred:
        return {}
    if not hasattr(head, "prototypes"):
        raise UsageError(
            f"the losses {', '.join(centred)} compare logits over prototypes: set "
            "config.model.name='self_distilled'"
        )
    return dict.fromkeys(centred, head.prototypes)


def configured_losses(config: ConfigDict) -> dict[str, dict[str, Any]]:
    """config.losses without unset options (None)."""
    return {
        name: {key: value for key, value in options.items() if value is not None}
        for name, options in config.losses.items()
    }


def learning_rate(config: ConfigDict, steps: int) -> Schedule:
    """The config's learning rate schedule over `steps`."""
    c = config.optimizer
    return optimizer.schedule(c.schedule, c.learning_rate, steps, c.warmup_steps)

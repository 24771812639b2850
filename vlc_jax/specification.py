"""What belongs to weights as much as their numbers, compared with the config before anything runs.

Activation, epsilon, pixels, tokenizer: weights load without complaint when one of them is wrong,
and are worse for it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import flax.linen as nn
import numpy as np
from ml_collections import ConfigDict

import input_pipeline
from input_pipeline import image as image_ops
from vlc_jax import build, weights
from vlc_jax.build import Task
from vlc_jax.errors import UsageError
from vlc_jax.models.text_vectors import VectorTower

# Rows of an embedding table beyond the tokenizer's ids: tables are padded to round sizes.
MAX_SPARE_ROWS = 1024
# Share of tokens that may differ: the forms of one tokenizer name some special tokens otherwise.
MAX_DIFFERING = 0.01


def facts(config: ConfigDict, task: Task) -> dict[str, Any]:
    """What weights trained with this config would say of themselves; keys of `facts.FIELDS`. Where
    texts are vectors, they say nothing of text.
    """
    image, text = task.model.image, task.model.text
    mean, std = image_ops.NORMALISATIONS[config.input.normalisation]
    of_image = {
        "image_activation": image.activation,
        "image_epsilon": image.epsilon,
        "mean": mean,
        "std": std,
        "interpolation": config.input.interpolation,
        "crop": build.image_transform(config, is_training=False).crop,
    }
    if reads_vectors(task.model):
        return of_image
    return {
        **of_image,
        "text_activation": text.activation,
        "text_epsilon": text.epsilon,
        "context_length": text.context_length,
        "vocab_size": text.vocab_size,
        **_text_facts(task),
    }


def check_files(config: ConfigDict, task: Task, path: str | Path) -> None:
    """Raises UsageError if the files beside the weights at `path` contradict the config."""
    if not reads_vectors(task.model):
        folder = weights.metadata.folder(path)
        with build.usage_errors():
            vocabulary = input_pipeline.folder_vocabulary(folder) if folder else None
        check_tokenizer(config, task, vocabulary, path)
    check_facts(config, task, weights.metadata.read(path), path)


def check_facts(
    config: ConfigDict, task: Task, theirs: Mapping[str, Any], path: str | Path
) -> None:
    """Raises UsageError naming each fact of the weights at `path` that the config contradicts, and
    where it is set.
    """
    ours = facts(config, task)
    if "context_length" in ours.keys() & theirs.keys() and may_cut_text(task.model):
        ours["context_length"] = max(ours["context_length"], theirs["context_length"])
    differing = [
        f"{name} is {theirs[name]}, here {ours[name]} ({_field(config, name)})"
        for name in ours.keys() & theirs.keys()
        if not _is_same(theirs[name], ours[name])
    ]
    if differing:
        raise UsageError(
            f"what is known of the weights at {path} is that {'; '.join(sorted(differing))}: set "
            "the fields in brackets accordingly"
        )


def check_tokenizer(
    config: ConfigDict, task: Task, theirs: Mapping[str, int] | None, path: str | Path
) -> None:
    """Raises UsageError if the tokenizer is not that of the weights at `path`: most of their rows
    have no id, or their vocabulary `theirs` (token -> id, if known) numbers the tokens otherwise.
    """
    tokenizer, rows = task.tokenizer, task.model.text.vocab_size
    rule = f"use the tokenizer that belongs to {path} (config.text.tokenizer, and its path)"
    if rows - tokenizer.vocab_size > MAX_SPARE_ROWS:
        raise UsageError(
            f"the configured model ({config.model.variant}) embeds {rows} tokens, tokenizer "
            f"{config.text.tokenizer!r} has {tokenizer.vocab_size}; {rule}, and its model.variant"
        )
    ours = tokenizer.vocabulary()
    differing = [token for token, index in (theirs or {}).items() if ours.get(token) != index]
    if theirs and len(differing) > MAX_DIFFERING * len(theirs):
        token = sorted(differing, key=theirs.__getitem__)[len(differing) // 2]
        raise UsageError(
            f"tokenizer {config.text.tokenizer!r} is not the one of {path}: {len(differing)} of "
            f"{len(theirs)} tokens differ, as {token!r} ({theirs[token]}, here "
            f"{ours.get(token, 'none')}); {rule}"
        )


def _text_facts(task: Task) -> dict[str, Any]:
    """What the tokenizer does to case, punctuation, ends and padding, seen on its ids.

    The padding only where the text tower reads it (SigLIP).
    """
    tokenizer, found = task.tokenizer, {"padding_side": "right"}
    plain, capital, points = tokenizer(["a red dog", "A RED Dog", "a red, dog!"])
    found["lower_case"] = bool((plain == capital).all())
    found["strips_punctuation"] = bool((plain == points).all())
    names = {index: token for token, index in tokenizer.vocabulary().items()}
    if tokenizer.eos_id in names:
        found["eos_token"] = names[tokenizer.eos_id]
    if tokenizer.pad_id in names and not may_cut_text(task.model):
        found["pad_token"] = names[tokenizer.pad_id]
    return found


def may_cut_text(model: nn.Module) -> bool:
    """Whether a text never reads what follows its end."""
    if reads_vectors(model):
        return False
    return model.text.is_causal and model.text.pooling == "eos"


def reads_vectors(model: nn.Module) -> bool:
    """Whether texts come as vectors from a file, and no text tower reads them."""
    return isinstance(model.text, VectorTower)


def _field(config: ConfigDict, fact: str) -> str:
    """Where a fact is set; of a tokenizer without that option, the choice of another one."""
    field, name = weights.metadata.FIELDS[fact], config.text.tokenizer
    is_listed = name in config.text and field.rpartition(".")[2] in config.text[name]
    if "{}" in field and not is_listed:
        return "config.text.tokenizer"
    return field.format(name)


def _is_same(a: Any, b: Any) -> bool:
    return a == b if isinstance(a, str) else bool(np.allclose(a, b, rtol=1e-4, atol=0))

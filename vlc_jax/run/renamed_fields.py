"""Config fields by which config.json of earlier versions differs: renamed ones and renamed values,
which are refused with the new name, and added ones, whose value is implied."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vlc_jax.errors import UsageError

RENAMED_FIELDS = {  # former name -> name now
    "blocks": "sub_batches",
    "logit_scale_max": "model.logit_scale_max",
    "optimizer.multipliers": "optimizer.learning_rate_multipliers (config.frozen for those of 0)",
    "model.head.train_functional_words": "frozen ('head/functional_words' unless they are trained)",
    "input.negatives.kinds": "input.negatives.generators",
    "input.negatives.missing": "input.negatives.fallback",
    "input.positives.kinds": "input.positives.generators",
    "input.positives.missing": "input.positives.fallback",
    "text.marks": "text.functional_words",
}
RENAMED_VALUES = {  # field -> former value, also as a word of the command line -> value now
    "model.remat": {"True": "block", "False": "none"},
}

# Added field -> the value that runs without it had.
IMPLIED_FIELDS = {
    "compilation_cache": None,
    "eval.cache": None,
    "eval.seconds": None,
    "input.llava.text_only": False,
    "input.question": "",
    "input.shards.shuffle": "global",
    "input.shards.stage": None,
    "input.text_only_question": "",
    "lora.dropout": 0.0,
    "microbatch": None,
    "model.attention": "xla",
    "model.text_tower": True,
    "optimizer.mu_dtype": "float32",
    "plan.step": "train",
    "text.lengths": (),
    "watchdog": {},
}


def add_implied_fields(content: dict[str, Any]) -> None:
    """Adds IMPLIED_FIELDS to a config.json that lacks them, where it has their group."""
    for name, value in IMPLIED_FIELDS.items():
        *groups, field = name.split(".")
        node: Any = content
        for group in groups:
            node = node.get(group) if isinstance(node, dict) else None
        if isinstance(node, dict):
            node.setdefault(field, copy.copy(value))


def refuse_renamed_fields(content: Mapping[str, Any], path: Path) -> None:
    """Raises UsageError for a config.json with former names or values (RENAMED_FIELDS,
    RENAMED_VALUES)."""
    earlier = f"{path} was written by an earlier version of vlc_jax: "
    for old, new in RENAMED_FIELDS.items():
        if _find(content, old) is not None or (old in content and "." not in old):
            raise UsageError(
                f"{earlier}config.{old} is now config.{new}; train again, or use the version named "
                "in its env.json"
            )
    refuse_renamed_values(content, earlier)


def refuse_renamed_values(content: Mapping[str, Any], prefix: str = "") -> None:
    """Raises UsageError, `prefix` before its sentence, for a config with a former value."""
    for field, values in RENAMED_VALUES.items():
        found = str(_find(content, field))
        if found in values:
            raise UsageError(
                f"{prefix}config.{field}={found} is now {values[found]!r}, with the same results: "
                "write that instead"
            )


def _find(content: Mapping[str, Any], field: str) -> Any:
    """The value of a field by its dotted path; None where there is none."""
    node: Any = content
    for key in field.split("."):
        node = node.get(key) if isinstance(node, Mapping) else None
    return node

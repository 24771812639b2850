"""Config fields that have another name now; old configs are refused with the new one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vlc_jax.errors import UsageError

RENAMED_FIELDS = {  # former name -> name now
    "blocks": "sub_batches",
    "logit_scale_max": "model.logit_scale_max",
    "optimizer.multipliers": "optimizer.learning_rate_multipliers (config.frozen for those of 0)",
    "input.negatives.kinds": "input.negatives.generators",
    "input.negatives.missing": "input.negatives.fallback",
    "input.positives.kinds": "input.positives.generators",
    "input.positives.missing": "input.positives.fallback",
    "text.marks": "text.functional_words",
}


def refuse_renamed_fields(content: Mapping[str, Any], path: Path) -> None:
    """Raises UsageError for a config.json with fields by their former names (RENAMED_FIELDS)."""
    for old, new in RENAMED_FIELDS.items():
        node: Any = content
        for key in old.split("."):
            node = node.get(key) if isinstance(node, Mapping) else None
        if node is not None or (old in content and "." not in old):
            raise UsageError(
                f"{path} was written by an earlier version of vlc_jax: config.{old} is now "
                f"config.{new}; train again, or use the version named in its env.json"
            )

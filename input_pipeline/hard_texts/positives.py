"""Table of hard positives: name -> generator (caption -> hard positives)."""

from collections.abc import Callable

from vlc_jax.input_pipeline.hard_texts import replace_swap, scenes
from vlc_jax.input_pipeline.hard_texts.generator import Generator

POSITIVES: dict[str, Callable[..., Generator]] = {
    "replace": replace_swap.Replace,
    "swap": replace_swap.Swap,
    **scenes.SCENES_POSITIVES,
}

"""Table of hard positives: name -> generator (caption -> hard positives)."""

from collections.abc import Callable
from functools import partial

from vlc_jax.input_pipeline.hard_texts import from_table, noun_phrases, replace_swap, scene_texts
from vlc_jax.input_pipeline.hard_texts.generator import Generator

POSITIVES: dict[str, Callable[..., Generator]] = {
    "replace": replace_swap.Replace,
    "swap": replace_swap.Swap,
    "noun_phrases": noun_phrases.Phrases,
    "from_table": partial(from_table.FromTable, "positives"),
    **scene_texts.SCENES_POSITIVES,
}

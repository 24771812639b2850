"""Table of hard negatives: name -> generator (caption -> hard negatives)."""

from collections.abc import Callable
from functools import partial

from vlc_jax.input_pipeline.hard_texts import (
    fill_mask,
    foils,
    from_table,
    left_right,
    negclip,
    scene_texts,
    shuffles,
    svlc,
)
from vlc_jax.input_pipeline.hard_texts.generator import Generator

NEGATIVES: dict[str, Callable[..., Generator]] = {
    **{name: partial(shuffles.TaggedShuffle, name) for name in shuffles.TAGGED_SHUFFLES},
    **{name: partial(shuffles.PlainShuffle, name) for name in shuffles.PLAIN_SHUFFLES},
    "negclip": negclip.NegClip,
    "crepe_swap": foils.CrepeSwap,
    "crepe_replace": foils.CrepeReplace,
    "crepe_negate": foils.CrepeNegate,
    "svlc_rule": svlc.SvlcRule,
    "svlc_fill_mask": fill_mask.SvlcFillMask,
    "left_right": left_right.LeftRight,
    "from_table": partial(from_table.FromTable, "negatives"),
    **scene_texts.SCENES_NEGATIVES,
}

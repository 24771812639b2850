"""Table of hard negatives: name -> generator (caption -> hard negatives)."""

from collections.abc import Callable
from functools import partial

from vlc_jax.input_pipeline.hard_texts import (
    crepe,
    fill_mask,
    from_table,
    left_right,
    negclip,
    scenes,
    shuffles,
    svlc,
)
from vlc_jax.input_pipeline.hard_texts.generator import Generator

NEGATIVES: dict[str, Callable[..., Generator]] = {
    **{name: partial(shuffles.TaggedShuffle, name) for name in shuffles.TAGGED_SHUFFLES},
    **{name: partial(shuffles.PlainShuffle, name) for name in shuffles.PLAIN_SHUFFLES},
    "negclip": negclip.NegClip,
    "crepe_swap": crepe.CrepeSwap,
    "crepe_replace": crepe.CrepeReplace,
    "crepe_negate": crepe.CrepeNegate,
    "svlc_rule": svlc.SvlcRule,
    "svlc_fill_mask": fill_mask.SvlcFillMask,
    "left_right": left_right.LeftRight,
    "from_table": partial(from_table.FromTable, "negatives"),
    **scenes.SCENES_NEGATIVES,
}

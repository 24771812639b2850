"""Table of hard negatives: name -> generator (caption -> hard negatives)."""

import functools
from collections.abc import Callable

from vlc_jax.input_pipeline.hard_texts import (
    crepe,
    fill_mask,
    left_right,
    negclip,
    scenes,
    shuffles,
    svlc,
)
from vlc_jax.input_pipeline.hard_texts.generator import Generator

NEGATIVES: dict[str, Callable[..., Generator]] = {
    "shuffle_nouns_and_adjectives": functools.partial(
        shuffles.TaggedShuffle, "shuffle_nouns_and_adjectives"
    ),
    "shuffle_all_but_nouns_and_adjectives": functools.partial(
        shuffles.TaggedShuffle, "shuffle_all_but_nouns_and_adjectives"
    ),
    "shuffle_within_trigrams": functools.partial(shuffles.PlainShuffle, "shuffle_within_trigrams"),
    "shuffle_trigrams": functools.partial(shuffles.PlainShuffle, "shuffle_trigrams"),
    "shuffle_words": functools.partial(shuffles.PlainShuffle, "shuffle_words"),
    "negclip": negclip.NegClip,
    "crepe_swap": crepe.CrepeSwap,
    "crepe_replace": crepe.CrepeReplace,
    "crepe_negate": crepe.CrepeNegate,
    "svlc_rule": svlc.SvlcRule,
    "svlc_fill_mask": fill_mask.SvlcFillMask,
    "left_right": left_right.LeftRight,
    **scenes.SCENES_NEGATIVES,
}

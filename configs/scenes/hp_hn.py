"""HP+HN (Kamath et al. 2024): CLIP's loss with hard negatives and hard positives.

  python -m vlc_jax.main --config configs/scenes/hp_hn.py --workdir runs/hp_hn
  python -m vlc_jax.main --config configs/scenes/hp_hn.py:hn_weight=0.5 --workdir runs/hp_hn_50

Positives: a word replaced by a synonym, or the same in another order, half and half. Where one is
not possible the other one takes its place; the paper does not say how it mixes the two, nor what
it does without one. Arguments: those of configs/common/finetuning.py; hn_weight=0|0.25|0.5|0.75|1,
the weight of the negatives beside the constant one of the positives (table 3 of the paper).
"""

from types import SimpleNamespace

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.configs.common import finetuning

POSITIVES = {"scenes_synonym": 0.5, "scenes_reorder": 0.5}
NEGATIVES = {"scenes_replace": 0.5, "scenes_swap": 0.25, "scenes_reverse": 0.25}


def get_config(argument: str | None = None) -> ConfigDict:
    args = finetuning.parse(argument, hn_weight=1.0)
    return make(args, args.hn_weight, POSITIVES)


def make(
    args: SimpleNamespace,
    hn_weight: float,
    positives: dict[str, float],
    negatives: dict[str, float] | None = None,
) -> ConfigDict:
    """positives, negatives: generator -> share; negatives are NEGATIVES unless given."""
    config = finetuning.make(args)
    with config.unlocked():
        config.losses = ConfigDict({"infonce": default.loss(weight=1.0)})
        if hn_weight:
            config.losses.svlc_negative = default.loss(weight=hn_weight)
            finetuning.use_negatives(config, **negatives or NEGATIVES)
        if positives:
            config.losses.analogy = default.loss(weight=1.0)
            finetuning.use_positives(config, 1, "replace", **positives)
    return config

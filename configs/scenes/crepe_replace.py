"""CREPE-replace (Hsieh et al. 2023): NegCLIP's loss on captions with one word replaced: a shape,
colour, size or relation.

  python -m vlc_jax.main --config configs/scenes/crepe_replace.py --workdir runs/crepe_replace

As the models crepe_ft_replace of Hsieh et al. (2023) and Kamath et al. (2024), whose training code
is not public. Arguments: those of configs/common/finetuning.py.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import finetuning


def get_config(argument: str | None = None) -> ConfigDict:
    return finetuning.negclip(finetuning.parse(argument), scenes_replace=1.0)

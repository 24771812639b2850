"""CREPE-swap (Hsieh et al. 2023): NegCLIP's loss on captions with two words of a class, or two
objects, swapped.

  python -m vlc_jax.main --config configs/scenes/crepe_swap.py --workdir runs/crepe_swap

As the models crepe_ft_swap of Hsieh et al. (2023) and Kamath et al. (2024), whose training code
is not public. Arguments: those of configs/common/finetuning.py.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import finetuning


def get_config(argument: str | None = None) -> ConfigDict:
    config = finetuning.swapped_captions(finetuning.parse(argument))
    with config.unlocked():  # NegCLIP's, here, are swapped colours only
        config.input.negatives.options.scenes_swap = {"roles": ("colour", "size", "shape")}
    return config

"""CREPE-negate (Hsieh et al. 2023): NegCLIP's loss on captions that deny an object of the image.

  python -m vlc_jax.main --config configs/scenes/crepe_negate.py --workdir runs/crepe_negate

As the models crepe_ft_negate of Hsieh et al. (2023) and Kamath et al. (2024), whose training code
is not public. Arguments: those of configs/common/finetuning.py.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import finetuning


def get_config(argument: str | None = None) -> ConfigDict:
    return finetuning.negclip(finetuning.parse(argument), scenes_negate=1.0)

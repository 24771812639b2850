"""NegCLIP (Yuksekgonul et al. 2023): CLIP's loss with captions that have two words or objects
swapped as further texts.

  python -m vlc_jax.main --config configs/scenes/negclip.py --workdir runs/negclip
  python -m vlc_jax.main --config configs/scenes/negclip.py:hard_images --workdir runs/relations

Arguments: those of configs/common/finetuning.py; hard_images: half of the images are hard images,
here the scene of another one with two objects (.7) or two colours (.3) exchanged. Captions alone do
not teach relations. The run with hard images has two stages, of which the first
(configs/scenes/hard_images.py) has nothing but pairs that differ in a relation.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import finetuning


def get_config(argument: str | None = None) -> ConfigDict:
    args = finetuning.parse(argument, hard_images=False)
    return finetuning.relations(args) if args.hard_images else finetuning.swapped_captions(args)

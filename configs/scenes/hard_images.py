"""CLIP's loss on pairs of scenes that differ in one relation: hard images, two objects each.

  python -m vlc_jax.main --config configs/scenes/hard_images.py --workdir runs/hard_images

Two objects swap places, the two captions state it, and there is no third object: only the relation
distinguishes the two images. It is learned all at once, in most seeds after about 450 steps (29,000
pairs), at the expense of attributes: this is the first stage of
configs/negclip.py:hard_images, which teaches both. With one pair in three about attributes
it was not learned within 800 steps, with third objects and a constant learning rate not within 600
(validation split, seed 0). Arguments: those of configs/common/finetuning.py.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import arguments, finetuning


def get_config(argument: str | None = None) -> ConfigDict:
    declared = finetuning.ARGUMENTS | {"steps": finetuning.RELATION_STEPS}
    return finetuning.relation_pairs(arguments.parse(argument, **declared))

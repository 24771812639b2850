"""Pairs of scenes that differ in one exchange, and nothing else in the batch to tell them apart.

  python -m vlc_jax.main --config configs/scenes/hard_images.py --workdir runs/hard_images

Two thirds of the pairs have two objects in each other's place, one third two colours exchanged. The
first stage of configs/scenes/negclip.py:hard_images. Arguments: those of configs/finetuning.py.
"""

from ml_collections import ConfigDict

from configs import finetuning


def get_config(argument: str | None = None) -> ConfigDict:
    args = finetuning.parse(argument, steps=300)
    config = finetuning.get_config(args)
    with config.unlocked():
        use(config, relation=2 / 3, attribute=1 / 3)
    return config


def use(config: ConfigDict, **kinds: float) -> None:
    """Every second row is the hard image of the row before; one caption per picture, so that both
    rows say of their pictures what differs.
    """
    config.input.hard_images = 1
    config.input.scenes.hard_images = tuple(kinds.items())
    config.input.scenes.captions = 1
    config.input.scenes.count = 256_000

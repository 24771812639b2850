"""DAC (Doveh et al. 2023): multiple-instance loss on a bag of dense captions per image, with a hard
negative of each.

  python -m vlc_jax.main --config configs/scenes/dac.py --workdir runs/dac

Arguments: those of configs/common/finetuning.py; bag=N (captions per image; the authors have 10);
lora (adapters of rank 4, as the authors do).
"""

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.configs.coco import svlc
from vlc_jax.configs.common import finetuning


def get_config(argument: str | None = None) -> ConfigDict:
    args = finetuning.parse(argument, bag=4, lora=False)
    config = finetuning.make(args)
    with config.unlocked():
        config.losses = ConfigDict(
            {
                "infonce": default.loss(weight=1.0),
                "dac_mil": default.loss(weight=1.0),
                # the first negative is the caption's, the others are those of the bag
                "dac_negative_bag": default.loss(weight=1.0) | {"negative_range": (1, None)},
                "svlc_negative": default.loss(weight=1.0) | {"negative_range": (0, 1)},
            }
        )
        finetuning.use_negatives(config, scenes_replace=1.0)
        config.input.negatives.of_positives = 1
        finetuning.use_positives(config, args.bag, "skip", scenes_describe=1.0)
        if args.lora:
            svlc.use_lora(config)
    return config

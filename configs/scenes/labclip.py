"""LABCLIP (Koishigarina et al. 2025) on a frozen CLIP: a linear map of the text embedding.

  python -m vlc_jax.main --config configs/scenes/labclip.py --workdir runs/labclip
  python -m vlc_jax.main --config configs/scenes/labclip.py:opposite=text --workdir runs/lab_text

Arguments: those of configs/common/heads.py; opposite=image, or text: as the authors train, without
hard images, and per caption one whose words or objects are exchanged as a further text.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import finetuning, heads


def get_config(argument: str | None = None) -> ConfigDict:
    args = heads.parse_scenes(argument, **heads.TOWERS | {"opposite": "image"})
    config = heads.on_scenes(args)
    with config.unlocked():
        if args.opposite == "text":
            finetuning.use_negatives(config, scenes_swap=0.5, scenes_reverse=0.5)
        heads.labclip(config, args)
        config.optimizer.learning_rate = 1e-3
    return config

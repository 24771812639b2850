"""PACL (patch-aligned contrastive learning): patches pooled with text-dependent weights, on CLIP.

  python -m vlc_jax.main --config configs/scenes/pacl.py --workdir runs/pacl
  python -m vlc_jax.main --config configs/scenes/pacl.py:rope=feature_1d,pooling=own_caption \\
    --workdir runs/pacl_rope
  python -m vlc_jax.main --config configs/scenes/pacl.py:rope=qk_2d,image_tower=unlocked \\
    --workdir runs/pacl_qk

Arguments: those of configs/common/heads.py (and vlc_jax/models/pacl.py). configs/llava/pacl.py is
its recipe.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import heads


def get_config(argument: str | None = None) -> ConfigDict:
    args = heads.parse_scenes(argument, **heads.PACL, hard_images=1)
    config = heads.on_scenes(args)
    with config.unlocked():
        heads.pacl(config, args)
    return config

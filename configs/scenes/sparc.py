"""SPARC (Bica et al. 2024) on a frozen CLIP: each token is compared with its own patches.

  python -m vlc_jax.main --config configs/scenes/sparc.py --workdir runs/sparc

Arguments: those of configs/common/heads.py; scoring=local|global; text_tokens=real, or all: padding
counts in the mean of tokens, as in its code. configs/llava/sparc.py is its recipe.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import heads


def get_config(argument: str | None = None) -> ConfigDict:
    own = {"scoring": "local", "text_tokens": "real", "hard_images": 1}
    args = heads.parse_scenes(argument, **heads.PATCHES | own)
    config = heads.on_scenes(args)
    with config.unlocked():
        heads.sparc(config, args)
    return config

"""CLIP-FT: CLIP finetuned with its own loss, the control of the methods in this folder.

  python -m vlc_jax.main --config configs/scenes/clip_ft.py --workdir runs/clip_ft
  python -m vlc_jax.main --config configs/scenes/clip_ft.py --workdir runs/clip_ft \\
    --config.init_from=runs/clip

Arguments: those of configs/common/finetuning.py.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import finetuning


def get_config(argument: str | None = None) -> ConfigDict:
    return finetuning.make(finetuning.parse(argument))

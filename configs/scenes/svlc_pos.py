"""SVLC+Pos (Doveh et al. 2023): SVLC with a hard positive that is pulled to image and caption.

  python -m vlc_jax.main --config configs/scenes/svlc_pos.py --workdir runs/svlc_pos

The authors' positives are written by a language model; here the same is said in another order, or
with a synonym. Arguments: those of configs/scenes/svlc.py; symmetric (both directions of the
analogy loss, the authors' option).
"""

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.configs.common import finetuning
from vlc_jax.configs.scenes import svlc


def get_config(argument: str | None = None) -> ConfigDict:
    args = finetuning.parse(argument, in_batch=False, lora=False, symmetric=False)
    config = svlc.make(args)
    with config.unlocked():
        analogy = "analogy_symmetric" if args.symmetric else "analogy"
        config.losses[analogy] = default.loss(weight=1.0)
        # without a positive, the authors take the caption itself
        finetuning.use_positives(config, 1, "self", scenes_synonym=0.5, scenes_reorder=0.5)
    return config

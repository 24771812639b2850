"""DCSM (dense cosine similarity maps): a small CNN scores the patch x token map of a frozen CLIP.

  python -m vlc_jax.main --config configs/scenes/dcsm.py --workdir runs/dcsm
  python -m vlc_jax.main --config configs/scenes/dcsm.py:mode=authors --workdir runs/dcsm_authors

Blocks of 8 images with their captions and 8 opposites, as its authors train, here of three kinds:
two objects in each other's place, two colours exchanged, an object that one caption denies and the
other picture has. The network tells words apart by their column in the map, so captions are plain:
they say the colour of each object, and no sizes nor "a photo of", and a word is nearly always in
the same column. Arguments: those of configs/common/heads.py;
  mode=clean, or authors (a word's row one place early, maps standardised over the batch, dropout)
  opposite=image, or text (8 images, 8 captions and 8 wrong ones)
  layout=flat|grid; standardise=running|tensor|per_pair (if not that of the mode); blocks=N per step
  functional=rows, or none (columns of functional words are those of their tokens)
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import finetuning, heads


def get_config(argument: str | None = None) -> ConfigDict:
    own = {"mode": "clean", "opposite": "image", "layout": "flat", "standardise": "", "blocks": 1}
    own |= {"functional": "rows", "phrases": "plain"}
    args = heads.parse_scenes(argument, **heads.TOWERS | own, steps=10_000)
    head = {"layout": args.layout}
    head |= {"standardise": args.standardise} if args.standardise else {}
    config = heads.on_scenes(args)
    with config.unlocked():
        heads.dcsm(config, args, **head)
        config.optimizer.learning_rate = 2e-3
        if args.opposite == "text":
            finetuning.use_negatives(config, scenes_swap=1.0)
    return config

"""DCSM on frozen towers: a small network reads the map of image tokens against text tokens.

  python -m vlc_jax.main --config configs/scenes/dcsm.py --workdir runs/dcsm

Blocks of 8 images with their captions and the 8 images and captions with the objects exchanged, as
its authors train. Arguments: those of configs/heads.py; layout=flat|grid;
standardise=running|tensor|per_pair; blocks=N of 16 rows per step.
"""

from ml_collections import ConfigDict

from configs import default, heads

# The authors' eleven, as far as the scenes have them.
WORDS = ("above", "below", "left", "right", "small", "big", "not", "no", "without", "but", "absent")
BLOCK = 16


def get_config(argument: str | None = None) -> ConfigDict:
    args = heads.parse(argument, layout="flat", standardise="running", blocks=4, steps=2000)
    head = {"words": len(WORDS), "layout": args.layout, "standardise": args.standardise}
    config = heads.get_config(args, "dcsm", temperature=1.0, **head)
    with config.unlocked():
        config.blocks = args.blocks
        config.batch_size = BLOCK * args.blocks
        config.text.marks.words = WORDS
        config.losses = ConfigDict({"infonce": default.loss(weight=2.0)})  # rows + columns
    return config

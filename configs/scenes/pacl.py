"""PACL on frozen towers: the patches of an image are weighed by the text.

  python -m vlc_jax.main --config configs/scenes/pacl.py --workdir runs/pacl
  python -m vlc_jax.main --config configs/scenes/pacl.py:rope=feature_1d,pooling_of=own_caption \\
    --workdir runs/pacl_rope

Arguments: those of configs/heads.py; pooling_of=pairwise|own_caption; eval_pooling=sigmoid|uniform;
rope=none|feature_1d|feature_2d (vlc_jax/models/pacl.py).
"""

from ml_collections import ConfigDict

from configs import heads


def get_config(argument: str | None = None) -> ConfigDict:
    args = heads.parse(argument, pooling_of="pairwise", eval_pooling="sigmoid", rope="none")
    options = {"pooling": args.pooling_of, "eval_pooling": args.eval_pooling, "rope": args.rope}
    return heads.get_config(args, "pacl", temperature=0.1, **options)

"""SPARC on frozen towers: each token of a caption picks its patches.

  python -m vlc_jax.main --config configs/scenes/sparc.py --workdir runs/sparc

Arguments: those of configs/heads.py; scoring=local|global; rope=none|feature_1d|feature_2d.
"""

from ml_collections import ConfigDict

from configs import default, heads


def get_config(argument: str | None = None) -> ConfigDict:
    args = heads.parse(argument, scoring="local", rope="none")
    config = heads.get_config(args, "sparc", temperature=0.1, scoring=args.scoring, rope=args.rope)
    with config.unlocked():
        config.losses = ConfigDict(
            {"infonce": default.loss(weight=0.5), "sparc_local": default.loss(weight=1.0)}
        )
    return config

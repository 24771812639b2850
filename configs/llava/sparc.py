"""SPARC (Bica et al. 2024) on a frozen CLIP: each token is compared with its own patches.

  python -m vlc_jax.main --workdir runs/sparc \\
    --config configs/llava/sparc.py:rope=feature_1d,weights=ViT-L-14-336px.pt,path=prepared/llava

The row "multiple text tokens" of the table in configs/llava/pacl.py, with rope=feature_1d: must
reproduce What'sUp, individual and pairs, A left / right 48.1 and 0.0, A on / under 50.0 and 2.9, B
left / right 50.0 and 6.9, B front / behind 48.0 and 7.8. Not yet run at full size here; an
estimate: as configs/llava/pacl.py, 14 hours of one A100.

After Bica et al. 2024 (arXiv:2401.09865), who train everything from scratch with a learned
temperature; the weights .5 and 1 of the global and the local loss are those of both. Padding counts
in the mean of tokens (text_tokens=all), as in the code of the ACL 2025 paper, whose evaluation has
another threshold, 1/625, than its training and we, 1/576.

Arguments: those of configs/llava/pacl.py but those of PACL alone; text_tokens=all|real;
scoring=local|global.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import arguments, heads

ARGUMENTS = heads.CAPTIONS | heads.PATCHES | {"text_tokens": "all", "scoring": "local"}


def get_config(argument: str | None = None) -> ConfigDict:
    args = heads.check(arguments.parse(argument, **ARGUMENTS))
    config = heads.on_captions(args)
    with config.unlocked():
        heads.sparc(config, args)
    return config

"""SigLIP L/16 at 384 pixels (Zhai et al. 2023) from scratch, first at 256 pixels.

  python -m vlc_jax.main --workdir runs/siglip_l16_384 \\
    --config configs/pretrain/siglip_l16_384.py:path=SHARDS,tokenizer=FILE

The authors train on English WebLI, which is not public: batch 32k, 40 billion examples at 256
pixels and 5 billion at 384.

The first run is in WORKDIR/pretrain; weights=RUN starts from another one at 256 pixels, or from
published weights. The second has a 100 times smaller rate and no decay (section 4.6); its warm-up
is that of the first. Sources, what is not as in the paper, and arguments: see
configs/pretrain/siglip_b16.py; here with weights, and tokens=64.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import arguments, pretraining


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(
        argument,
        **pretraining.ARGUMENTS,
        weights="",
        examples=40_000_000_000,
        examples_384=5_000_000_000,
        tokens=64,
    )
    first, config = (
        pretraining.siglip(args, "SigLIP-L/16-256", size, args.tokens, examples, remat="block")
        for size, examples in ((256, args.examples), (384, args.examples_384))
    )
    with config.unlocked():
        pretraining.go_on_from(first, config)
    return config

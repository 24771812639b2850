"""SigLIP B/16 (Zhai et al. 2023) from scratch, on shards of image-text pairs.

  python -m vlc_jax.main --workdir runs/siglip_b16 \\
    --config configs/pretrain/siglip_b16.py:path=SHARDS,tokenizer=FILE

The authors train on English WebLI, which is not public: 9 billion examples, batch 32k, 32 TPU v4 in
5 days.

Sections 4.2 and 4.7 and appendix C give tokens (16; the released models have 64, and are trained as
siglip_l16_384.py is), rate, decay and b2. Not as in the paper: AdamW in place of ViT-Adafactor
(table 7: 70.3 and 70.1 after 3 billion examples); the warm-up is that of SigLiT (appendix A), the
gradient is clipped at 1 as in big_vision's public example, for want of SigLIP's own. The decay,
1e-4 in big_vision, is .1 in AdamW's units.

Arguments: tokenizer (SentencePiece's .model of 32,000 pieces, tokenizer.json or a folder);
examples; tokens; the others: see configs/pretrain/clip_b32.py.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import arguments, pretraining


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(argument, **pretraining.ARGUMENTS, examples=9_000_000_000, tokens=16)
    return pretraining.siglip(args, "SigLIP-B/16", 224, args.tokens, args.examples)

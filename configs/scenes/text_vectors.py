"""CLIP or PACL with precomputed text vectors in place of a text tower, and a frozen image tower.

  python -m vlc_jax.main --config configs/negclip.py:hard_images --workdir runs/relations
  vlc-jax embed_text --config configs/scenes/text_vectors.py --run runs/relations \\
    --out vectors/scenes.npy
  python -m vlc_jax.main --config configs/scenes/text_vectors.py:vectors=vectors/scenes.npy \\
    --workdir runs/text_vectors

Only the connector of the vectors and the head are trained. The vectors here come from the text
tower of a run that distinguishes "left of" from "right of"; any file of text vectors works (--model
of the second command).
Arguments: the arguments of configs/common/heads.py; vectors=FILE;
connector=linear|mlp2x_gelu|llm2clip|none (vlc_jax/models/text_vectors.py); head=clip|pacl;
rope=none|feature_1d|feature_2d, on the patches of head=pacl.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import arguments, heads

TEMPERATURES = {"clip": 0.07, "pacl": 0.1}
ARGUMENTS = heads.SCENES | heads.TOWERS
ARGUMENTS |= {"vectors": "", "connector": "linear", "head": arguments.OneOf(*TEMPERATURES)}
ARGUMENTS |= {"rope": arguments.OneOf("none", "feature_1d", "feature_2d")}


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(argument, **ARGUMENTS)
    config = heads.on_scenes(args)
    with config.unlocked():
        heads.use(config, args.head, TEMPERATURES[args.head], heads.towers(args))
        if args.head == "clip":
            config.frozen = heads.towers(args)  # its logit scale is learned
        if args.rope != "none":
            config.model.head.rope = args.rope
        heads.use_vectors(config, args.vectors, args.connector)
    return config

"""Weights of other projects, evaluated without training.

  python -m vlc_jax.main --mode eval --workdir runs/zero_shot \\
    --config configs/eval/zero_shot.py:weights=FILE,tokenizer=FILE,path=DATA/captions.json

Arguments: weights (a file or folder of OpenAI, open_clip, Hugging Face or big_vision); family (clip
for CLIP and EVA02-CLIP, or siglip); variant (vlc_jax/models/variants.py); tokenizer (its file,
which comes with the weights); size (pixels); path, image_folder (a table of images and captions for
retrieval, all of its rows). Of CLIP weights that are not OpenAI's, say the activation:
--config.model.activation=gelu; EVA02-CLIP's come with the variant. What the files beside the
weights say is compared with the config, and a contradiction refused.
"""

from ml_collections import ConfigDict

from configs import arguments, default, families


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(argument, **families.ARGUMENTS, family="clip", variant="B/32", size=224)
    use = {"clip": families.use_clip, "siglip": families.use_siglip}
    if args.family not in use:
        raise ValueError(f"family is clip or siglip; got {args.family!r}")
    config = default.get_config()
    with config.unlocked():
        use[args.family](config, args, args.size)
        config.evals = ConfigDict({"retrieval": {"split": "all"}})
    return config

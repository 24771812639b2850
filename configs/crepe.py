"""CREPE-swap, -replace and -negate (Hsieh et al. 2023): NegCLIP's loss on captions with two words
swapped, one word replaced, or a negation inserted.

  python -m vlc_jax.main --config configs/crepe.py:kind=swap --workdir runs/crepe_swap
  python -m vlc_jax.main --workdir runs/crepe_coco --config \\
    configs/crepe.py:data=coco,kind=replace,weights=ViT-B-32.pt,tokenizer=FILE,path=captions.json

These are the models crepe_ft_swap, crepe_ft_replace and crepe_ft_negate of Hsieh et al. Negatives
on COCO are in the style of CREPE (Ma et al. 2023), from word lists; the rest is NegCLIP's without
hard images, which no paper mentions. Of kind=negate only a ResNet-50 from scratch has published
numbers. On the scenes swapped words are of one class, replaced words are a shape, colour, size or
relation, and negations deny an object of the image.

Arguments: data=scenes|coco; kind=swap|replace|negate; the others as in configs/clip_ft.py.
"""

from ml_collections import ConfigDict

from vlc_jax.configs import clip_ft, default
from vlc_jax.configs.common import arguments, finetuning

KIND = {"kind": arguments.OneOf("swap", "replace", "negate")}
COCO = clip_ft.COCO | KIND | {"sets": "replace+swap+sugarcrepe"}
SCENES = {
    "swap": {"scenes_swap": 0.5, "scenes_reverse": 0.5},
    "replace": {"scenes_replace": 1.0},
    "negate": {"scenes_negate": 1.0},
}


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = arguments.parse_data(argument, scenes=clip_ft.SCENES | KIND, coco=COCO)
    if args.data == "scenes":
        config = finetuning.negclip(args, **SCENES[args.kind])
        if args.kind == "swap":
            with config.unlocked():  # NegCLIP's, here, are swapped colours only
                roles = {"roles": ("colour", "size", "shape")}
                config.input.negatives.options.scenes_swap = roles
        return config
    config = clip_ft.make(args)
    with config.unlocked():
        config.losses = ConfigDict({"negclip": default.loss(weight=1.0)})
        finetuning.use_negatives(config, **{f"crepe_{args.kind}": 1.0})
    return config

"""CREPE-swap, -replace and -negate (Hsieh et al. 2023): NegCLIP's loss on captions with two words
swapped, one word replaced, or a negation inserted.

  python -m vlc_jax.main --config configs/crepe.py:kind=swap --workdir runs/crepe_swap
  python -m vlc_jax.main --workdir runs/crepe_coco --config \\
    configs/crepe.py:data=coco,kind=replace,weights=ViT-B-32.pt,tokenizer=FILE,path=captions.json

data=coco must reproduce (Kamath et al. 2024, table 1: original, augmented, brittleness) kind=swap
REPLACE 63.5 / 50.4 / 19.8, SWAP 70.6 / 56.7 / 26.0; kind=replace REPLACE 73.7 / 53.9 / 23.9, SWAP
71.1 / 57.7 / 25.4. Not yet run at full size here.

No number of a ViT-B/32 finetuned by kind=negate is published; of a ResNet-50 from scratch there is
SugarCrepe's replace object / attribute / relation, swap object / attribute, add object / attribute
(its code, issue 3): 78.9 / 72.0 / 65.9, 60.7 / 61.0, 71.8 / 66.6, without negatives 78.6 / 70.6 /
67.0, 58.1 / 61.8, 72.1 / 67.2. Not yet run at full size here.

These are the models crepe_ft_swap, crepe_ft_replace and crepe_ft_negate of Hsieh et al.; neither
training code nor generator is public. Negatives on COCO are in the style of CREPE (Ma et al. 2023),
from word lists; the rest is NegCLIP's without hard images, which no paper mentions. On the scenes
swapped words are of one class, replaced words are a shape, colour, size or relation, and negations
deny an object of the image.

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

"""CoN-CLIP (Singh et al. 2025, "Learning the power of No"): NegCLIP's loss with negated captions,
and distractor images that are matched with the negated captions.

  python -m vlc_jax.main --config configs/conclip.py --workdir runs/conclip
  python -m vlc_jax.main --workdir runs/conclip_full --config \\
    configs/conclip.py:data=coco,weights=ViT-B-32.pt,tokenizer=FILE,path=cc_neg.jsonl

Each row of the table of data=coco has an image, its caption, its negation (`negatives`) and a
distractor (`negative_image`); CC-Neg has 188,246 rows for training, and the authors take the
nearest image of COCO. Hyper-parameters are the defaults of their code; the image tower is frozen.
NegBench's numbers are those since March 2025: before, its evaluation lacked the L2 norm.

Arguments: data=scenes|coco; image_tower=locked|unlocked. With data=scenes the arguments of
configs/clip_ft.py; "X and Z" becomes "X and no Z", and the distractor has another shape in place of
Z. With data=coco the arguments of configs/clip_ft.py; batch counts captions, and there are twice as
many rows.
"""

from ml_collections import ConfigDict

from vlc_jax.configs import clip_ft, default
from vlc_jax.configs.common import arguments, finetuning, pretrained

OPTIONS = {"image_tower": arguments.OneOf("locked", "unlocked")}
COCO = clip_ft.COCO | {"sets": "negbench+sugarcrepe", "batch": 200}


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = arguments.parse_data(argument, scenes=clip_ft.SCENES | OPTIONS, coco=COCO | OPTIONS)
    config = clip_ft.make(args)  # five epochs, 50 steps of warmup, rate 1e-6, decay .2, as here
    duplicates = pretrained.DUPLICATES[args.data]
    with config.unlocked():
        # The mean of three cross-entropies: of images and of captions, half of NegCLIP's loss each,
        # and of distractors. Captions are contrasted with the distractors, too.
        config.losses = ConfigDict(
            {
                "negclip": default.loss(2 / 3, duplicates=duplicates, rows=(0, 2), all_images=True),
                "distractors": default.loss(
                    1 / 3,
                    duplicates=duplicates,
                    loss="negclip",
                    direction="image_to_text",
                    rows=(1, 2),
                ),
            }
        )
        if args.data == "scenes":
            finetuning.use_triplets(config, denial=1.0)
        else:
            pretrained.use_triplets(config)
        if args.image_tower == "locked":
            config.frozen = ("image",)
    return config

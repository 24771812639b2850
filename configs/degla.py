"""DeGLA (Hu et al. 2025): NegCLIP's loss, image and caption each against the caption's own hard
negatives, and features near those of a teacher, a moving average of the model.

  python -m vlc_jax.main --config configs/degla.py --workdir runs/degla
  python -m vlc_jax.main --config configs/degla.py:as_released --workdir runs/degla_released
  python -m vlc_jax.main --workdir runs/degla_coco --config \\
    configs/degla.py:data=coco,weights=ViT-B-32.pt,tokenizer=FILE,path=captions_train2014.json

The authors have four negatives per caption by a language model. negatives=given reads them from a
table with the columns image, caption and negatives (of their file the fields image_id, original
and enhanced); with negatives=rules, as in configs/hp_hn.py, a word is replaced or two exchanged.

as_released: the text-grounded loss with the mask of the released code, which contrasts captions
with other captions' negatives (vlc_jax/losses/teacher.py).

Arguments: data=scenes|coco; as_released; the arguments of configs/clip_ft.py; with data=coco also
negatives=rules|given.
"""

from ml_collections import ConfigDict

from vlc_jax.configs import clip_ft, default, hp_hn
from vlc_jax.configs.common import arguments, finetuning, pretrained

OPTIONS = {"as_released": False}
COCO = clip_ft.COCO | {  # batch 256: 32 on each of 8 GPUs
    "sets": f"{pretrained.ARO}+valse+sugarcrepe",
    "negatives": arguments.OneOf("rules", "given"),
}


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = arguments.parse_data(argument, scenes=clip_ft.SCENES | OPTIONS, coco=COCO | OPTIONS)
    config = clip_ft.make(args)
    duplicates = pretrained.DUPLICATES[args.data]
    with config.unlocked():
        # weights, decays, rate and the constant scale: scripts/train_DeGLA.sh and loss.py
        config.losses = ConfigDict(
            {
                "negclip": default.loss(weight=1.0, duplicates=duplicates),
                "svlc_negative": default.loss(weight=0.1),
                "text_grounded": default.loss(
                    weight=0.1, logit_scale=10.0, as_released=args.as_released
                ),
                "distill": default.loss(weight=0.005, decay=0.9996),
            }
        )
        negatives = config.input.negatives
        if args.data == "scenes":
            finetuning.use_negatives(config, 4, **hp_hn.NEGATIVES["scenes"]["both"])
            return config
        if args.negatives == "given":
            pretrained.use_given_negatives(config, 4)
        else:
            pretrained.use_texts(negatives, 4, "replace", hp_hn.NEGATIVES["coco"]["both"])
        config.optimizer.weight_decay = 0.1  # the rate, 1e-6, is that of configs/clip_ft.py
    return config

"""TripletCLIP (Patel et al. 2024): NegCLIP's loss on images with their captions, and on an image of
each hard negative, for which the negative is the caption and the caption the negative.

  python -m vlc_jax.main --config configs/tripletclip.py --workdir runs/tripletclip
  python -m vlc_jax.main --workdir runs/tripletclip_full --config \\
    configs/tripletclip.py:data=coco,tokenizer=FILE,path=triplets.jsonl

Each row of the table of data=coco has an image, its caption, one hard negative (`negatives`) and an
image of that (`negative_image`); those of the authors are of a language model and a text-to-image
model, a million of them, and they train without weights. Batch, epochs and rate are those of their
script and their results (their README's command has a rate of 5e-5 and 30 epochs), the rest the
defaults of their code.

Arguments: data=scenes|coco. With data=scenes the arguments of configs/clip_ft.py; in hard images
two objects have changed places, or two colours. With data=coco the arguments of configs/clip_ft.py;
without weights the model starts at random; batch counts captions, and there are twice as many rows.
"""

from ml_collections import ConfigDict

from vlc_jax.configs import clip_ft, default
from vlc_jax.configs.common import arguments, finetuning, pretrained

COCO = clip_ft.COCO | {"sets": f"sugarcrepe+{pretrained.RETRIEVAL}", "batch": 1024}


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = arguments.parse_data(argument, scenes=clip_ft.SCENES, coco=COCO)
    config = clip_ft.make(args)
    duplicates = pretrained.DUPLICATES[args.data]
    with config.unlocked():
        loss = {"weight": 1.0, "duplicates": duplicates}
        config.losses = ConfigDict(
            {
                "negclip": default.loss(**loss, rows=(0, 2)),
                "negative_images": default.loss(**loss, loss="negclip", rows=(1, 2)),
            }
        )
        if args.data == "scenes":
            finetuning.use_triplets(config, relation=0.5, attribute=0.5)
        else:
            pretrained.use_triplets(config)
            config.epochs = 10.0
            config.optimizer.warmup_steps = 1000
            config.optimizer.learning_rate = 5e-4
            config.optimizer.weight_decay = 0.5
            config.optimizer.b2, config.optimizer.eps = 0.999, 1e-8
            config.optimizer.clip_norm = None
    return config

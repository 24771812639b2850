"""CS-CLIP (Kargi et al. 2026): NegCLIP's loss on captions, and CLIP's on their units, entities and
relations, each with a foil.

  python -m vlc_jax.main --config configs/csclip.py --workdir runs/csclip
  python -m vlc_jax.main --workdir runs/csclip_coco --config \\
    configs/csclip.py:data=coco,weights=ViT-B-32.pt,tokenizer=FILE,path=units.jsonl

The table of data=coco is one of `vlc-jax write_hard_texts` (csclip_units): units in the column
`positives`, a foil of each in `negatives`. The authors draw two units, relations before entities;
here all are drawn equally often, and word tables replace a word of the caption, where the authors
exchange words. Weights, batch, epochs, rate and decay are the defaults of their code; so is the
warmup, 3 of 5 epochs of 113,287 images.

Arguments: data=scenes|coco; the arguments of configs/clip_ft.py.
"""

from ml_collections import ConfigDict

from vlc_jax.configs import clip_ft, default
from vlc_jax.configs.common import arguments, finetuning, pretrained

COCO = clip_ft.COCO | {"sets": "half_truths", "batch": 128}
UNITS = 2
ROLES = {"shape": 1.0, "colour": 1.0, "size": 1.0, "relation": 1.0}


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = arguments.parse_data(argument, scenes=clip_ft.SCENES, coco=COCO)
    config = clip_ft.make(args)
    common = {"duplicates": pretrained.DUPLICATES[args.data]}
    with config.unlocked():
        config.losses = ConfigDict(  # the first negative is the caption's
            {
                "negclip": default.loss(1.0, negative_range=(0, 1), **common),
                "units": default.loss(0.5, negative_range=(1, None), **common),
            }
        )
        negatives = config.input.negatives
        if args.data == "scenes":
            finetuning.use_positives(config, UNITS, "skip", scenes_units=1.0)
            finetuning.use_negatives(
                config, scenes_replace=0.5, scenes_swap=0.25, scenes_reverse=0.25
            )
            # a foil is false: no synonyms
            negatives.options.scenes_replace = {"draw": "base_words", "roles": ROLES}
        else:
            pretrained.use_texts(config.input.positives, UNITS, "skip", {"from_record": 1.0})
            generators = {"crepe_replace": 1.0, "from_record": 0.0}
            pretrained.use_texts(negatives, 1, "replace", generators)
            columns = {f"{side}_column": side for side in ("positives", "negatives")}
            pretrained.use_columns(config, **columns)
            config.optimizer.learning_rate = 5e-6
            config.optimizer.weight_decay = 0.01
            config.optimizer.warmup_steps = 3 * 113_287 // args.batch
            config.optimizer.clip_norm = 1.0
        negatives.of_positives = 1
    return config

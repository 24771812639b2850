"""C2LIP (Pham et al. 2026, "No Hard Negatives Required"): SigLIP finetuned on captions and on their
noun phrases, without hard negatives.

  python -m vlc_jax.main --config configs/c2lip.py --workdir runs/c2lip
  python -m vlc_jax.main --workdir runs/c2lip_coco --config \\
    configs/c2lip.py:data=coco,weights=FOLDER,path=captions.jsonl,phrases=table

The sigmoid loss of captions; with weight 1 that of noun phrases, each right for its caption's image
(sigmoid_phrases); with weight .01 that of noun phrases and the patches pooled for each
(sigmoid_phrases_local). Evaluation and export know pooled features alone, as SigLIP's.

Rates, weights and sizes of data=coco are those of the authors' script (SamsungLabs/
concept_centric_clip, 8 GPUs with 96 images each): SigLIP B/16 on CC3M with DreamLIP's short
captions.

phrases=table reads the column "positives", which vlc-jax write_hard_texts fills (c2lip_phrases) as
the authors' language model does; phrases=tagger finds them in the caption. At most `bag` phrases
are drawn at each reading; the authors take all, and the caption where it has none. A phrase that
another caption of the batch shares is no negative of its image; as_released makes it one.

Arguments: data=scenes|coco; bag (phrases per caption: 8, or 3 on the scenes); as_released. With
data=scenes the arguments of configs/clip_ft.py. With data=coco those of configs/siglip_ft.py
without image_tower, phrases=tagger|table and tagger (spacy:PIPELINE or precomputed:FILE).
"""

from ml_collections import ConfigDict

from vlc_jax.configs import clip_ft, default
from vlc_jax.configs.common import arguments, finetuning, heads, pretrained

SCENES = clip_ft.SCENES | {"bag": 3, "as_released": False}
COCO = {
    **pretrained.FINETUNING,
    "sets": f"sugarcrepe+sugarcrepe_pp+{pretrained.RETRIEVAL}",
    "batch": 768,
    "family": arguments.OneOf("siglip", "siglip2"),
    "variant": "SigLIP-B/16",
    "size": 224,
    "phrases": arguments.OneOf("tagger", "table"),
    "tagger": pretrained.TAGGER,
    "bag": 8,
    "as_released": False,
}


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = arguments.parse_data(argument, scenes=SCENES, coco=COCO)
    is_scenes = args.data == "scenes"
    config = finetuning.make(args) if is_scenes else default.get_config()
    tagger, generator = f"scenes:{args.world}" if is_scenes else args.tagger, "noun_phrases"
    with config.unlocked():
        if is_scenes:
            finetuning.use_siglip(config, args)
        else:
            pretrained.FAMILIES[args.family](config, args, args.size)
            pretrained.five_epochs(config, args)
            pretrained.use_random_crops(config)
            config.optimizer.learning_rate = 1e-5
            config.optimizer.weight_decay = 0.1
            if args.phrases == "table":
                pretrained.use_columns(config, positives_column="positives")
                generator = "from_record"
        options = {generator: {"tagger": tagger}} if generator == "noun_phrases" else {}
        pretrained.use_texts(config.input.positives, args.bag, "skip", {generator: 1.0}, **options)
        heads.use_pooled(config, "c2lip")
        weights = {"sigmoid": 1.0, "sigmoid_phrases": 1.0, "sigmoid_phrases_local": 0.01}
        duplicates = "keep" if args.as_released else "mask"
        config.losses = ConfigDict(
            {name: default.loss(weight, duplicates=duplicates) for name, weight in weights.items()}
        )
    return config

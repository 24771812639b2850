"""READ-CLIP (Kwon et al. 2025) with its loss of paraphrases: NegCLIP's loss, and another caption of
the image as a text that must find the caption among all captions of the batch.

  python -m vlc_jax.main --config configs/read_clip.py --workdir runs/read_clip
  python -m vlc_jax.main --workdir runs/read_clip_coco --config \\
    configs/read_clip.py:data=coco,weights=ViT-B-32.pt,tokenizer=FILE,path=captions_train2014.json

Three of NegCLIP's negatives per caption. The paraphrase is one of the other captions of the image
or, with paraphrases, one of these or of a language model's texts, which the authors released: the
column "positives" of a table. On the scenes it is a paraphrase by rules. The authors' third loss,
the reconstruction of captions by a frozen T5, is missing.

Arguments: data=scenes|coco; the arguments of configs/clip_ft.py; with data=coco also paraphrases
and tagger (the authors: spacy:en_core_web_sm).
"""

from ml_collections import ConfigDict

from vlc_jax.configs import clip_ft, default
from vlc_jax.configs.common import arguments, finetuning, pretrained

COCO = clip_ft.COCO | {
    "sets": f"{pretrained.SPATIAL}+valse+crepe_productivity+sugarcrepe",
    "paraphrases": False,
    "tagger": pretrained.TAGGER,
}


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = arguments.parse_data(argument, scenes=clip_ft.SCENES, coco=COCO)
    config = clip_ft.make(args)
    duplicates = pretrained.DUPLICATES[args.data]
    with config.unlocked():
        # weights, batch, rate and decay: config/train_read_clip.yaml of the authors' code
        config.losses = ConfigDict(
            {
                "negclip": default.loss(weight=1.0, duplicates=duplicates),
                "paraphrase": default.loss(weight=0.5, duplicates=duplicates),
            }
        )
        if args.data == "scenes":
            finetuning.use_negatives(config, 3, scenes_swap=0.5, scenes_reverse=0.5)
            finetuning.use_positives(config, 1, "skip", scenes_paraphrase=1.0)
            return config
        options = pretrained.AUTHORS | {"tagger": args.tagger}
        pretrained.use_texts(config.input.negatives, 3, "skip", {"negclip": 1.0}, negclip=options)
        shares, fallback = {"other_captions": 1.0}, "skip"
        if args.paraphrases:
            pretrained.use_columns(config, positives_column="positives")
            shares, fallback = shares | {"from_record": 1.0}, "replace"
        pretrained.use_texts(config.input.positives, 1, fallback, shares)
        config.optimizer.learning_rate = 1e-5
        config.optimizer.weight_decay = 0.1
    return config

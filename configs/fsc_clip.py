"""FSC-CLIP (Oh et al. 2024): hard-negative losses of pooled features and of patches against tokens,
a focal cross-entropy with smoothed labels, meant to keep more of CLIP's other abilities than
NegCLIP's loss does.

  python -m vlc_jax.main --config configs/fsc_clip.py --workdir runs/fsc_clip
  python -m vlc_jax.main --workdir runs/fsc_clip_coco --config \\
    configs/fsc_clip.py:data=coco,weights=ViT-B-32.pt,tokenizer=FILE,path=train_neg_clip.tsv

CLIP's loss and the caption against three hard negatives of its own, with weight 0.5 by the cosine
of pooled features, with weight 0.2 by the patches that are like each token. Evaluation and export
know the pooled features alone, as CLIP's. On the scenes the second is off; local=0.2 adds it.

The authors have one negative of each of three generators: NegCLIP's, a word replaced by WordNet,
pairs of words shuffled. On COCO each is drawn here, by thirds, from NegCLIP's, from word tables
(CREPE-style) and from shuffled groups of three words; where one gives nothing, another takes its
place. With as_released each of the three makes one negative or none, and a missing one keeps a
logit of 0 (vlc_jax/losses/hn_focal.py).

Arguments: data=scenes|coco; the arguments of configs/clip_ft.py; local, the weight of the second
loss (on COCO 0.2; for ViT-B/16 and L/14 the authors take 0.5); as_released; with data=coco also
tagger (the authors: spacy:en_core_web_sm).
"""

from ml_collections import ConfigDict

from vlc_jax.configs import clip_ft, default
from vlc_jax.configs.common import arguments, finetuning, heads, pretrained

SETS = f"{pretrained.ARO}+crepe_productivity+sugarcrepe+valse+{pretrained.SPATIAL}+winoground"
SCENES = clip_ft.SCENES | {"local": 0.0, "as_released": False}
COCO = clip_ft.COCO | {
    "local": 0.2,
    "as_released": False,
    "sets": SETS,
    "tagger": pretrained.TAGGER,
}
GENERATORS = {"negclip": 1.0, "crepe_replace": 1.0, "shuffle_trigrams": 1.0}


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = arguments.parse_data(argument, scenes=SCENES, coco=COCO)
    config = clip_ft.make(args)
    with config.unlocked():
        # weights, gamma, smoothing, rate and decay: README of the authors' code
        focal = {"gamma": 2.0, "label_smoothing": 0.02, "as_released": args.as_released}
        config.losses.hn_focal = default.loss(weight=0.5, **focal)
        if args.local:
            config.losses.hn_focal_local = default.loss(weight=args.local, **focal)
            heads.use_pooled(config, "fsc")
        if args.data == "scenes":
            shares = {"scenes_replace": 0.5, "scenes_swap": 0.25, "scenes_reverse": 0.25}
            finetuning.use_negatives(config, 3, **shares)
        else:
            options = {
                "negclip": pretrained.AUTHORS | {"tagger": args.tagger},
                "shuffle_trigrams": pretrained.AUTHORS,
            }
            fallback = "one_each" if args.as_released else "replace"
            pretrained.use_texts(config.input.negatives, 3, fallback, GENERATORS, **options)
            config.optimizer.learning_rate = 5e-6
            config.optimizer.weight_decay = 0.1
    return config

"""CE-CLIP (Zhang et al. 2024): NegCLIP's loss, a hinge between the caption and each hard negative
with a threshold per kind of negative, and captions apart from their negatives as texts.

  python -m vlc_jax.main --config configs/ce_clip.py --workdir runs/ce_clip
  python -m vlc_jax.main --config configs/ce_clip.py:as_released --workdir runs/ce_clip_released
  python -m vlc_jax.main --workdir runs/ce_clip_coco --config \\
    configs/ce_clip.py:data=coco,weights=ViT-B-32.pt,tokenizer=FILE,path=captions_train2014.json

A threshold is the mean gap between captions and one kind of negatives in the step before. So every
kind has its place among a caption's negatives, which stays empty where a caption offers none. On
COCO there are three, by word tables: two objects exchanged, an object replaced, and another word
replaced (SVLC's rules). kinds=swap+noun+verb takes those of a table of yours, each text of the
column "negatives" with its kind in "negative_kinds".

as_released: the losses that the released code computes (vlc_jax/losses/ce_clip.py); docs/methods.md
lists the differences.

Arguments: data=scenes|coco; as_released; the arguments of configs/clip_ft.py; with data=coco also
kinds.
"""

from ml_collections import ConfigDict

from vlc_jax.configs import clip_ft, default
from vlc_jax.configs.common import arguments, finetuning, pretrained

OPTIONS = {"as_released": False}
COCO = clip_ft.COCO | {
    "sets": f"{pretrained.ARO}+valse+sugarcrepe",
    "batch": 1512,  # 378 on each of 4 GPUs: scripts/run_multiple_nodes.sh, as all numbers below
    "kinds": "",  # joined by +; "": of the rules
}
RULES = {
    "crepe_swap": {"classes": ("object",)},
    "crepe_replace": {"classes": ("object",)},
    "svlc_rule": {},
}


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = arguments.parse_data(argument, scenes=clip_ft.SCENES | OPTIONS, coco=COCO | OPTIONS)
    config = clip_ft.make(args)
    duplicates = "keep" if args.as_released else pretrained.DUPLICATES[args.data]
    released = {"missing": "keep"} if args.as_released else {}
    with config.unlocked():
        config.losses = ConfigDict(
            {
                "negclip": default.loss(weight=1.0, duplicates=duplicates, **released),
                "cross_modal_rank": default.loss(
                    weight=0.2, upper_bound=10.0, as_released=args.as_released
                ),
                "intra_modal": default.loss(weight=0.3, as_released=args.as_released, **released),
            }
        )
        negatives = config.input.negatives
        if args.data == "scenes":
            names = ("scenes_replace", "scenes_swap", "scenes_reverse")
            finetuning.use_negatives(config, len(names), **dict.fromkeys(names, 1.0))
            negatives.fallback = "one_each"
            return config
        names, options = [*RULES], RULES
        if args.kinds:
            names, options = [f"from_record:{kind}" for kind in _kinds(args.kinds)], {}
            columns = {"negatives_column": "negatives", "negative_kinds_column": "negative_kinds"}
            pretrained.use_columns(config, **columns)
        shares = dict.fromkeys(names, 1.0)
        pretrained.use_texts(negatives, len(names), "one_each", shares, **options)
        config.epochs = 10.0
        config.optimizer.learning_rate = 5e-6
        config.optimizer.weight_decay = 0.1
    return config


def _kinds(text: str) -> list[str]:
    """Raises ValueError for an empty kind and for one that comes twice."""
    kinds = text.split("+")
    if not all(kinds) or len({*kinds}) < len(kinds):
        raise ValueError(
            "kinds are different names, joined by +, as in kinds=swap+noun+verb: each has a "
            f"threshold; got kinds={text}"
        )
    return kinds

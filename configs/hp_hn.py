"""HP+HN (Kamath et al. 2024): CLIP's loss with hard negatives and hard positives.

  python -m vlc_jax.main --config configs/hp_hn.py --workdir runs/hp_hn
  python -m vlc_jax.main --config configs/hp_hn.py:hn_weight=0.5 --workdir runs/hp_hn_50
  python -m vlc_jax.main --workdir runs/hp_hn_coco --config \\
    configs/hp_hn.py:data=coco,weights=ViT-B-32.pt,tokenizer=FILE,path=captions_train2017.json

Positives have a word replaced by a synonym, or the same content in another order (on COCO the sides
of an "and" swapped); negatives have a word replaced by another one, or two words exchanged. With
kind=both these are half and half, and where a caption offers no text of one kind it gets one of the
other; with kind=swap or replace (section 5.2) such a caption takes no part in that loss
(--config.input.positives.fallback=self takes the caption itself, as SVLC's code does).

The paper gives 5 epochs, weight 1 of the positives and hn_weight=0|0.25|0.5|0.75|1; for the rest
see configs/clip_coco.py.

Arguments: data=scenes|coco; kind=both|swap|replace; hn_weight, the weight of the negatives beside
the constant weight of the positives. With data=scenes the arguments of configs/clip_ft.py. With
data=coco the arguments of configs/clip_coco.py; replace_hp and swap_hp (jsonl files of positives
that a language model wrote, one line per line of path, which is COCO's captions JSON; not needed
where path is a folder prepared with them). Several files of a kind are joined by "+":
replace_hp=VERBS+PLACES draws a caption's verb and spatial positives equally often. Without any,
word tables make positives.
"""

from types import SimpleNamespace

from ml_collections import ConfigDict

from vlc_jax.configs import clip_coco, clip_ft, default
from vlc_jax.configs.common import arguments, finetuning, pretrained

OPTIONS = {"kind": arguments.OneOf("both", "swap", "replace"), "hn_weight": 1.0}
FILES = {"replace_hp": "", "swap_hp": ""}
POSITIVES = {  # data -> kind -> generator -> share
    "scenes": {
        "both": {"scenes_synonym": 0.5, "scenes_reorder": 0.5},
        "swap": {"scenes_reorder": 1.0},
        "replace": {"scenes_synonym": 1.0},
    },
    "coco": {
        "both": {"replace": 0.5, "swap": 0.5},
        "swap": {"swap": 1.0},
        "replace": {"replace": 1.0},
    },
}
NEGATIVES = {
    "scenes": {
        "both": {"scenes_replace": 0.5, "scenes_swap": 0.25, "scenes_reverse": 0.25},
        "swap": {"scenes_swap": 0.5, "scenes_reverse": 0.5},
        "replace": {"scenes_replace": 1.0},
    },
    "coco": {
        "both": {"crepe_replace": 0.5, "crepe_swap": 0.5},
        "swap": {"crepe_swap": 1.0},
        "replace": {"crepe_replace": 1.0},
    },
}


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = arguments.parse_data(
        argument, scenes=clip_ft.SCENES | OPTIONS, coco=clip_coco.ARGUMENTS | FILES | OPTIONS
    )
    config = with_negatives(args, NEGATIVES[args.data][args.kind], args.hn_weight)
    with config.unlocked():
        config.losses.analogy = default.loss(weight=1.0)
        fallback = "replace" if args.kind == "both" else "skip"
        finetuning.use_positives(config, 1, fallback, **POSITIVES[args.data][args.kind])
        if args.data == "coco":
            _read_positives(config, args)
    return config


def with_negatives(args: SimpleNamespace, negatives: dict[str, float], weight: float) -> ConfigDict:
    """CLIP's loss and, unless weight is 0, the loss of hard negatives (generator -> share)."""
    config = finetuning.make(args) if args.data == "scenes" else clip_coco.make(args)
    with config.unlocked():
        config.losses = ConfigDict({"infonce": default.loss(weight=1.0)})
        if weight:
            config.losses.svlc_negative = default.loss(weight=weight)
            finetuning.use_negatives(config, **negatives)
    return config


def _read_positives(config: ConfigDict, args: SimpleNamespace) -> None:
    """Reads the files of positives, if any, with COCO's captions."""
    files = {"replace": args.replace_hp, "swap": args.swap_hp}
    files = {kind: path for kind, path in files.items() if path}
    for kind in files:
        if args.kind not in ("both", kind):
            raise ValueError(
                f"{kind}_hp goes with kind=both or kind={kind}; with kind={args.kind} known: "
                f"{args.kind}_hp"
            )
    if not files:
        return
    source = pretrained.source_of(args.path, args.image_folder, "coco")
    if source["source"] != "coco":
        raise ValueError(
            f"replace_hp and swap_hp go with path=captions_....json; {args.path!r} names "
            "a prepared folder, which holds its positives"
        )
    pretrained.read(config, source, train_split="train", positives=files)

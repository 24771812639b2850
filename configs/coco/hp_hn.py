"""HP+HN (Kamath et al. 2024): CLIP's loss with hard negatives and hard positives.

  python -m vlc_jax.main --workdir runs/hp_hn \\
    --config configs/coco/hp_hn.py:weights=ViT-B-32.pt,tokenizer=FILE,path=captions_train2017.json

Must reproduce (table 1: original, augmented, brittleness) REPLACE 69.0 / 58.0 / 16.9, SWAP 73.2 /
61.1 / 22.9; (table 10) ImageNet 49.9, COCO R@1 image / text 49.7 / 65.0, Flickr30k 67.5 / 80.6;
(table 3) with hn_weight=0.75, 0.5, 0.25 and 0 REPLACE 68.2 / 57.6 / 16.6, 67.3 / 56.9 / 16.4,
66.0 / 55.5 / 16.6, 58.5 / 49.8 / 15.8 and SWAP 72.9 / 61.0 / 22.7, 72.5 / 60.5 / 22.8,
71.6 / 59.8 / 22.8, 64.1 / 51.2 / 25.0. The authors took about 3 hours on 4 A100. Not yet run at
full size here; an estimate: 3 million images and 9 million texts take 39 minutes of one A100 at
30 % of its bfloat16 peak. By --mode plan 13 ms a step on v6e:4x4 at best, which its estimate of the
memory's traffic decides (2.6 ms by FLOPs), 34 ms on v5e:2x4 (24 by FLOPs; 14.1 of 15.75 GiB).

The paper says 5 epochs, weight 1 of the positives and hn_weight=0|0.25|0.5|0.75|1; not its rate,
batch, decay and warmup (configs/coco/clip_coco.py), nor how it chooses between replace and swap:
here by halves, the other kind taking the place of one that a caption offers none of.

Arguments: those of configs/coco/clip_coco.py; hn_weight; replace_hp and swap_hp (the jsonl files of
positives that a language model wrote, line by line those of path, which is COCO's captions JSON;
not needed where path is a folder prepared with them). Without them word tables make positives.
"""

from types import SimpleNamespace

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.configs.coco import clip_coco
from vlc_jax.configs.common import arguments, pretrained

FILES = {"replace_hp": "", "swap_hp": ""}
NEGATIVES = {"crepe_replace": 0.5, "crepe_swap": 0.5}


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(argument, **clip_coco.ARGUMENTS, **FILES, hn_weight=1.0)
    return make(args, args.hn_weight, "replace", replace=0.5, swap=0.5)


def make(
    args: SimpleNamespace,
    hn_weight: float,
    fallback: str,
    negatives: dict[str, float] | None = None,
    **positives: float,
) -> ConfigDict:
    """positives, negatives: generator -> share; negatives are NEGATIVES unless given.

    fallback: what a caption gets that offers no positive.
    """
    config = clip_coco.make(args)
    with config.unlocked():
        config.losses = ConfigDict({"infonce": default.loss(weight=1.0)})  # without negatives
        if hn_weight:
            config.losses.svlc_negative = default.loss(weight=hn_weight)
            negatives = negatives or NEGATIVES
            otherwise = "replace" if len(negatives) > 1 else "skip"  # the other kind, or none
            pretrained.use_texts(config.input.negatives, 1, otherwise, negatives)
        if positives:
            config.losses.analogy = default.loss(weight=1.0)
            pretrained.use_texts(config.input.positives, 1, fallback, positives)
        files = {kind: getattr(args, f"{kind}_hp") for kind in positives}
        if any(files.values()):
            source = pretrained.source_of(args.path, args.image_folder, "coco")
            if source["source"] != "coco":
                raise ValueError(
                    f"replace_hp and swap_hp go with path=captions_....json; {args.path!r} names "
                    "a prepared folder, which holds its positives"
                )
            pretrained.read(config, source)
            config.input.coco.train_split = "train"
            config.input.coco.positives.update({k: path for k, path in files.items() if path})
    return config

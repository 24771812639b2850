"""NegCLIP (Yuksekgonul et al. 2023): CLIP's loss with captions that have two words or phrases
swapped as further texts, and similar images as hard images.

  python -m vlc_jax.main --workdir runs/negclip \\
    --config configs/coco/negclip.py:weights=ViT-B-32.pt,tokenizer=FILE,path=train_neg_clip.tsv

Must reproduce (paper) VG-Relation .81, VG-Attribution .71, COCO-PRC .86, Flickr30k-PRC
.91, COCO R@1 image / text .41 / .56, and (Kamath et al. 2024, table 1) REPLACE 68.6 / 52.1 / 21.5,
SWAP 70.9 / 56.7 / 26.4. The authors trained on one GPU. Not yet run at full size here; an estimate:
1.1 million images and 2.3 million texts take 12 minutes of one A100 at 30 % of its bfloat16 peak.

Arguments: those of configs/coco/clip_ft.py; hard_images=1 (of the three that the table names per
row; 0 for data without); negatives=given (those of the table, or of shards made from it) or negclip
(made on the fly, with tagger=spacy:en_core_web_lg, as the authors', or precomputed:FILE).
"""

from types import SimpleNamespace

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.configs.coco import clip_ft
from vlc_jax.configs.common import arguments, pretrained


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = arguments.parse(
        argument,
        **clip_ft.ARGUMENTS,
        hard_images=1,
        negatives="given",
        tagger="spacy:en_core_web_lg",
    )
    if args.negatives not in ("given", "negclip"):
        raise ValueError(f"negatives is given or negclip; got {args.negatives!r}")
    config = clip_ft.make(args)
    with config.unlocked():
        config.batch_size = args.batch * (1 + args.hard_images)  # "512 x 1024": rows, and texts
        config.losses = ConfigDict({"negclip": default.loss(weight=1.0)})
        config.input.hard_images = args.hard_images
        # The authors drop rows without a negative; here such a row has part as a pair.
        generator = "from_record" if args.negatives == "given" else "negclip"
        pretrained.use_texts(config.input.negatives, 1, "skip", {generator: 1.0})
        if args.negatives == "given":
            config.input.records.negatives_column = "negatives"  # of a table of your own
        else:
            options = pretrained.AUTHORS | {"tagger": args.tagger}
            config.input.negatives.options.negclip = options
    return config


def without_hard_images(args: SimpleNamespace, generator: str) -> ConfigDict:
    """NegCLIP's loss on the negatives of one generator, all else as in configs/coco/clip_ft.py."""
    config = clip_ft.make(args)
    with config.unlocked():
        config.losses = ConfigDict({"negclip": default.loss(weight=1.0)})
        pretrained.use_texts(config.input.negatives, 1, "skip", {generator: 1.0})
    return config

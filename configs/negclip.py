"""NegCLIP (Yuksekgonul et al. 2023): CLIP's loss with captions that have two words or phrases
swapped as further texts, and similar images as hard images.

  python -m vlc_jax.main --config configs/negclip.py --workdir runs/negclip
  python -m vlc_jax.main --config configs/negclip.py:hard_images --workdir runs/relations
  python -m vlc_jax.main --workdir runs/negclip_coco --config \\
    configs/negclip.py:data=coco,weights=ViT-B-32.pt,tokenizer=FILE,path=train_neg_clip.tsv

On the scenes captions alone do not teach relations. With hard images half of the images are hard
images: the scene of another image with two objects (.7) or two colours (.3) exchanged. That run has
two stages; the first, configs/scenes/hard_images.py, has only pairs that differ in a relation.

Arguments: data=scenes|coco; with data=scenes the arguments of configs/clip_ft.py, and hard_images.
With data=coco the arguments of configs/clip_ft.py; hard_images=1 (of the three that the table names
per row, in a table of yours the columns id and hard_images, as vlc-jax nearest writes them; 0 for
data without); negatives=given (of the table, or of shards made from it) or negclip
(generated, with tagger=spacy:en_core_web_lg, the authors', or precomputed:FILE).
"""

from ml_collections import ConfigDict

from vlc_jax.configs import clip_ft, default
from vlc_jax.configs.common import arguments, finetuning, pretrained

SCENES = clip_ft.SCENES | {"hard_images": False}
COCO = clip_ft.COCO | {
    "sets": f"{pretrained.ARO}+{pretrained.RETRIEVAL}+replace+swap",
    "hard_images": 1,
    "negatives": arguments.OneOf("given", "negclip"),
    "tagger": "spacy:en_core_web_lg",
}


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = arguments.parse_data(argument, scenes=SCENES, coco=COCO)
    if args.data == "scenes":
        return finetuning.relations(args) if args.hard_images else finetuning.swapped_captions(args)
    config = clip_ft.make(args)
    with config.unlocked():
        config.batch_size = args.batch * (1 + args.hard_images)  # "512 x 1024": rows, and texts
        config.losses = ConfigDict({"negclip": default.loss(weight=1.0)})
        config.input.hard_images = args.hard_images
        if args.hard_images:
            pretrained.use_columns(config, id_column="id", hard_images_column="hard_images")
        # The authors drop rows without a negative; here such a row has part as a pair.
        generator = "from_record" if args.negatives == "given" else "negclip"
        pretrained.use_texts(config.input.negatives, 1, "skip", {generator: 1.0})
        if args.negatives == "given":
            pretrained.use_columns(config, negatives_column="negatives")
        else:
            options = pretrained.AUTHORS | {"tagger": args.tagger}
            config.input.negatives.options.negclip = options
    return config

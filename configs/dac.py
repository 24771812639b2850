"""DAC (Doveh et al. 2023, "Dense and aligned captions"): multiple-instance loss on a bag of dense
captions per image, with a hard negative of each.

  python -m vlc_jax.main --config configs/dac.py --workdir runs/dac
  python -m vlc_jax.main --workdir runs/dac_coco --config \\
    configs/dac.py:data=coco,weights=ViT-B-32.pt,path=cc3m.jsonl,language_model=FOLDER
  python -m vlc_jax.main --workdir runs/dac_sam --config \\
    configs/dac.py:data=coco,captions=C,dense=D,image_folder=I,weights=ViT-B-32.pt,language_model=F

The dense captions of data=coco are the column "positives" of a JSONL table (any number per image),
as vlc-jax write_hard_texts has it (dac_dense), or of shards made from one; or the authors' files
(input_pipeline/sources/dac.py has their forms): captions=FOLDER, with BLIP-2's caption of each
image, and dense=FOLDER, with the sentences of a language model or the captions of SAM's segments.

Arguments: data=scenes|coco; the arguments of configs/svlc.py; bag (sentences per image: 10, the
authors', or 4 on the scenes); with data=coco captions and dense, in place of path.
"""

from types import SimpleNamespace

from ml_collections import ConfigDict

from vlc_jax.configs import default, svlc
from vlc_jax.configs.common import arguments, finetuning, pretrained

SCENES = svlc.SCENES | {"bag": 4}
COCO = svlc.COCO | {"batch": 32, "bag": 10, "captions": "", "dense": ""}  # README


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = arguments.parse_data(argument, scenes=SCENES, coco=COCO)
    config = svlc.make(args)
    caption_range, bag_range = (0, 1), (1, None)  # the first negative is the caption's
    with config.unlocked():
        if args.in_batch:  # negatives of the bag are further texts for no other image
            config.losses.negclip.negative_range = caption_range
        config.losses.svlc_negative = default.loss(weight=1.0, negative_range=caption_range)
        config.losses.dac_mil = default.loss(weight=1.0)
        config.losses.dac_negative_bag = default.loss(weight=1.0, negative_range=bag_range)
        config.input.negatives.of_positives = 1
        if args.data == "scenes":
            finetuning.use_positives(config, args.bag, "skip", scenes_describe=1.0)
        else:
            if args.captions or args.dense:
                _read_folders(config, args)
            pretrained.use_columns(config, positives_column="positives")
            pretrained.use_texts(config.input.positives, args.bag, "skip", {"from_record": 1.0})
    return config


def _read_folders(config: ConfigDict, args: SimpleNamespace) -> None:
    """Reads the authors' folders of captions and dense captions."""
    named = {"captions": args.captions, "dense": args.dense, "images": args.image_folder}
    if args.path or not all(named.values()):
        raise ValueError(
            "captions, dense and image_folder go together, in place of path; got "
            f"path={args.path}, captions={args.captions}, dense={args.dense} and "
            f"image_folder={args.image_folder}"
        )
    pretrained.read(config, {"source": "dac"} | named)

"""CLIC (Peleg et al. 2025): two images side by side, with several texts that are true of both, one
that is false, and CLIP's loss on one of the images alone.

  python -m vlc_jax.main --config configs/clic.py --workdir runs/clic
  python -m vlc_jax.main --workdir runs/clic_coco --config \\
    configs/clic.py:data=coco,weights=ViT-B-32.pt,tokenizer=FILE,path=captions_train2017.json

The texts of a pair: p1, the captions one after the other; p2, in the other order; p3 and p4, of
further captions, in either order; and p1 with two words swapped, by word tables. Frozen image
tower, weights .5, .5 and 1, rate, decay, batch (200 on each of 4 GPUs), warmup (.2 epochs) and one
epoch, of a million pairs of LAION, are those of the authors' code. They normalise pixels by
ImageNet's means, here by CLIP's.

Arguments: data=scenes|coco; image_tower=locked|unlocked; the arguments of configs/clip_ft.py, path
being a table with several captions per image, or COCO's captions; batch counts pairs, and there are
twice as many rows.
"""

from ml_collections import ConfigDict

from vlc_jax.configs import clip_ft, default
from vlc_jax.configs.common import arguments, pretrained

OPTIONS = {"image_tower": arguments.OneOf("locked", "unlocked")}
SETS = f"sugarcrepe_pp+sugarcrepe+{pretrained.RETRIEVAL}"
COCO = clip_ft.COCO | {"sets": SETS, "batch": 800}
MORE = 2  # p3 and p4


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = arguments.parse_data(argument, scenes=clip_ft.SCENES | OPTIONS, coco=COCO | OPTIONS)
    config = clip_ft.make(args)
    with config.unlocked():
        pair = {"rows": (0, 2), "duplicates": pretrained.DUPLICATES[args.data]}
        config.losses = ConfigDict(
            {
                "clic": default.loss(0.5, **pair),
                "clic_negative": default.loss(0.5, **pair),
                "clic_distance": default.loss(1.0, **pair),
                "infonce": default.loss(1.0, **pair | {"rows": (1, 2)}),
            }
        )
        if args.data == "scenes":
            _use_scenes(config)
        else:
            _side_by_side(config, config.input.source, config.input.source_options)
            config.batch_size = 2 * args.batch
            config.epochs = 1.0
            config.input.crop = config.input.eval_crop or config.input.crop
            config.optimizer.weight_decay = 0.1
            config.optimizer.eps = 1e-8
            config.optimizer.warmup_steps = 1_000_000 // 800 // 5
        config.input.hard_images = 1
        pretrained.use_texts(config.input.negatives, 1, "skip", {"crepe_swap": 1.0})
        generators = {"from_record_in_order": 1.0}
        pretrained.use_texts(config.input.positives, 1 + MORE, "skip", generators)
        if args.image_tower == "locked":
            config.frozen = ("image",)
    return config


def _use_scenes(config: ConfigDict) -> None:
    # two captions without sizes and beginnings fit into the context
    config.input.scenes.caption_options.update(size=0.0, all_objects=0.0, prefixes=("",))
    _side_by_side(config, "scenes", config.input.scenes)


def _side_by_side(config: ConfigDict, source: str, options: ConfigDict) -> None:
    config.input.source_options = ConfigDict(
        {
            "base": source,
            "base_options": {key: x for key, x in options.to_dict().items() if x is not None},
            "size": config.input.image_size,
            "more": MORE,
        }
    )
    config.input.source = "side_by_side"

"""TFLocal: a small transformer over the patches and tokens of a frozen CLIP scores each pair.

  python -m vlc_jax.main --config configs/tflocal.py --workdir runs/tflocal
  python -m vlc_jax.main --workdir runs/tflocal_coco --config \\
    configs/tflocal.py:data=coco,weights=ViT-B-32.pt,tokenizer=FILE,path=captions_train2014.json

After "Revisiting Compositionality in Dual-Encoder Vision-Language Models: The Role of Inference"
(Miranda et al. 2026, arXiv:2604.11496), of which only the abstract was at hand: the transformer's
input and sizes, the rate and the sub-batches are ours.

The loss is CLIP's in sub-batches, since the transformer reads every pair of a sub-batch; features
can be stored (vlc-jax cache_features), and are those of DCSM, whose pairs and plain captions are
the data on the scenes.

Arguments: data=scenes|coco; hidden, depth (of the transformer; hidden is a multiple of 16 on the
scenes, of 64 on COCO); blocks (sub-batches per step: 1 of 16 rows on the scenes, 4 of the batch of
256 on COCO); image_tower, text_tower=locked|unlocked. With data=scenes the arguments of
configs/common/heads.py, and hard_images=0. With data=coco the arguments of configs/clip_ft.py.
"""

from ml_collections import ConfigDict

from vlc_jax.configs import clip_ft, default
from vlc_jax.configs.common import arguments, heads

SCENES = heads.PLAIN_SCENES | heads.TOWERS
SCENES |= {"steps": 3000, "hidden": 64, "depth": 2, "blocks": 1, "hard_images": 1}
COCO = clip_ft.COCO | heads.TOWERS
COCO |= {"hidden": 512, "depth": 4, "blocks": 4, "sets": "sugarcrepe+bivlc"}


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = arguments.parse_data(argument, scenes=SCENES, coco=COCO)
    is_scenes = args.data == "scenes"
    config = heads.on_scenes(args, bool(args.hard_images)) if is_scenes else clip_ft.make(args)
    with config.unlocked():
        if is_scenes:
            config.optimizer.learning_rate = 1e-3
            config.batch_size = 16 * args.blocks
        else:
            config.input.crop = config.input.eval_crop or "centre"
            heads.adam(config, rate=1e-4, epochs=5.0)
        sizes = {"hidden": args.hidden, "depth": args.depth}
        sizes["attention_heads"] = args.hidden // (16 if is_scenes else 64)
        heads.use(config, "tflocal", 1.0, heads.towers(args), **sizes)
        config.sub_batches = args.blocks
        config.losses = ConfigDict({"infonce": default.loss(weight=1.0)})
    return config

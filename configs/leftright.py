"""CLIP or SigLIP with left/right hard negatives: "on the left" replaced by "on the right".

  python -m vlc_jax.main --config configs/leftright.py --workdir runs/leftright
  python -m vlc_jax.main --config configs/leftright.py:family=siglip --workdir runs/lr_siglip
  python -m vlc_jax.main --workdir runs/leftright_coco --config \\
    configs/leftright.py:data=coco,weights=ViT-L-14-336px.pt,tokenizer=FILE,path=llava.json

"On Erroneous Agreements of CLIP Image Embeddings" (2024) finds that nothing changes. Batch, rate,
warmup and epochs of data=coco are the paper's (appendix B, 4 GPUs); decay 0, which it does not
print, is that of its authors' script; random crops (.9 to 1 of the area) are those of open_clip,
its trainer. About one caption in a hundred of the authors' data (LLaVA's LCS-558K and DataMix-665K)
has left or right; the others have no negative. Of a conversation one answer is drawn at each
reading, as they do; answers=joined is their captions for language models. configs/llava/clip_ft.py
is the control without negatives.

On the scenes half of the captions state where an object is, so that they have a negative;
scenes_whatsup and scenes_relation_swap evaluate it.

Arguments: data=scenes|coco; family=clip|siglip; image_tower=locked (the paper's choice) or
unlocked; negatives=leftright, or none, the control. With data=scenes the arguments of
configs/clip_ft.py. With data=coco the arguments of configs/clip_ft.py, path being conversations of
LLaVA (JSON files, several joined by "+", and so image_folder), a table or shards;
answers=each|first|joined (of JSON files); size (pixels; 0: the paper's).
"""

from types import SimpleNamespace

from ml_collections import ConfigDict

from vlc_jax.configs import clip_ft, default
from vlc_jax.configs.common import arguments, finetuning, pretrained

FAMILIES = {"clip": ("L/14-336", 336), "siglip": ("SigLIP-L/16-256", 384)}  # the paper's, pixels
LOSSES = {  # without negatives and with them
    "clip": {"none": "infonce", "leftright": "negclip"},
    "siglip": {"none": "sigmoid", "leftright": "sigmoid_negatives"},
}
OPTIONS = {
    "family": arguments.OneOf(*FAMILIES),
    "image_tower": arguments.OneOf("locked", "unlocked"),
    "negatives": arguments.OneOf("leftright", "none"),
}
COCO = clip_ft.COCO | {
    "sets": pretrained.WHATSUP,
    "batch": 512,  # 128 on each of 4 GPUs
    "variant": "",
    "answers": "each",
    "size": 0,
    **OPTIONS,
}


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = arguments.parse_data(argument, scenes=clip_ft.SCENES | OPTIONS, coco=COCO)
    return _on_scenes(args) if args.data == "scenes" else make(args)


def _on_scenes(args: SimpleNamespace) -> ConfigDict:
    config = finetuning.make(args)
    with config.unlocked():
        if args.family == "siglip":
            finetuning.use_siglip(config, args)
        config.input.scenes.caption_options.place = 0.5
        if args.negatives == "leftright":
            finetuning.use_negatives(config, left_right=1.0)
        _finish(config, args)
    return config


def make(args: SimpleNamespace) -> ConfigDict:
    """The config of data=coco."""
    variant, size = FAMILIES[args.family]
    args.variant = args.variant or variant
    config = default.get_config()
    with config.unlocked():
        pretrained.FAMILIES[args.family](config, args, args.size or size)
        pretrained.five_epochs(config, args)
        pretrained.use_random_crops(config)
        if args.path.endswith(".json"):
            pretrained.read_llava(config, args, answers=args.answers)
        if args.negatives == "leftright":
            pretrained.use_left_right(config.input.negatives)
        config.model.remat = "block"
        config.optimizer.learning_rate = 5e-6
        config.optimizer.weight_decay = 0.0
        _finish(config, args)
    return config


def _finish(config: ConfigDict, args: SimpleNamespace) -> None:
    """Loss and frozen tower, the same on both data."""
    loss = LOSSES[args.family][args.negatives]
    config.losses = ConfigDict({loss: default.loss(weight=1.0)})
    if args.image_tower == "locked":
        config.frozen = ("image",)

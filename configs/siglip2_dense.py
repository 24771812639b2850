"""The dense losses of SigLIP 2 (Tschannen et al. 2025, section 2.3): SigLIP, self-distillation of
crops (SILC; Naeem et al. 2023) and masked patches (TIPS; Maninis et al. 2024), with a teacher.

  python -m vlc_jax.main --config configs/siglip2_dense.py --workdir runs/siglip2_dense
  python -m vlc_jax.main --workdir runs/siglip2_dense_coco --config \\
    configs/siglip2_dense.py:data=coco,weights=FOLDER,path=captions.jsonl

SigLIP 2 adds both losses for the last fifth of its training, with weights 1 and .25, multiplied by
.25, .5, 1 and .5 for B, L, So400m and g; here they are added to trained weights. The teacher, a
moving average of the model, sees the image; the student sees 8 crops of it in one loss, and in the
other the image with half of its patches masked. Losses on captions see the image alone.

Temperatures, centre, decay and projections are DINO's, iBOT's and DINOv2's
(vlc_jax/losses/teacher.py, vlc_jax/models/self_distilled.py). With data=coco the projections, which
start from noise, have 20 times the rate of the towers: a choice of ours. Rate, decay and epochs are
those of configs/siglip_ft.py. docs/methods.md lists the differences.

On the scenes, 40 pixels wide, an image has 2 crops of a quarter to three fifths of its area, 24
pixels wide, since smaller ones show less than an object; projections are small.

Arguments: data=scenes|coco; self_distill and masked_patches (weights; 0 leaves the loss out);
crops; crop_size (pixels, a multiple of the patches'; 0: the image's); prototypes. With data=scenes
family=siglip|clip and the arguments of configs/clip_ft.py. With data=coco those of
configs/siglip_ft.py without image_tower; family=siglip|siglip2|clip.
"""

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.configs.common import arguments, finetuning, pretrained

LOSSES = {"siglip": "sigmoid", "siglip2": "sigmoid", "clip": "infonce"}
# of both weights, by size of the image tower; of any other size 1, which no paper gives
FACTORS = {"B": 0.25, "L": 0.5, "SO400M": 1.0, "g": 0.5, "gopt": 0.5}
OPTIONS = {"self_distill": 1.0, "masked_patches": 0.25}
SCENES = finetuning.ARGUMENTS | OPTIONS
SCENES |= {
    "family": arguments.OneOf("siglip", "clip"),
    "crops": 2,
    "crop_size": 24,
    "prototypes": 256,
}
COCO = {
    **pretrained.FINETUNING,
    **OPTIONS,
    "sets": pretrained.WHATSUP,
    "batch": 256,
    "family": arguments.OneOf(*LOSSES),
    "variant": "SigLIP-B/16",
    "size": 224,
    "crops": 8,
    "crop_size": 96,
    "prototypes": 65_536,
}


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = arguments.parse_data(argument, scenes=SCENES, coco=COCO)
    is_scenes = args.data == "scenes"
    config = finetuning.make(args) if is_scenes else default.get_config()
    head, scale, factor = {"prototypes": args.prototypes}, (0.05, 0.4), 1.0
    with config.unlocked():
        if is_scenes:
            if args.family == "siglip":
                finetuning.use_siglip(config, args)
            head |= {"hidden": 128, "bottleneck": 64}
            scale = (0.25, 0.6)
        else:
            pretrained.FAMILIES[args.family](config, args, args.size)
            pretrained.five_epochs(config, args)
            config.optimizer.learning_rate = 5e-6
            config.optimizer.weight_decay = 0.0
            config.optimizer.learning_rate_multipliers = (("head/.*", 20.0),)
            config.model.remat = "block"
            size = args.variant.partition("/")[0].split("-")[-1]  # "SigLIP-B/16", "PE-L/14-336"
            factor = FACTORS.get(size, 1.0)
        config.model.name, config.model.head = "self_distilled", ConfigDict(head)
        # as in the control on the scenes, configs/c2lip.py without the weights of its phrases
        duplicates = "mask" if is_scenes and args.family == "siglip" else "keep"
        caption_loss = default.loss(weight=1.0, duplicates=duplicates)
        config.losses = ConfigDict({LOSSES[args.family]: caption_loss})
        if args.self_distill:
            config.losses.self_distill = default.loss(
                weight=factor * args.self_distill,
                crops=args.crops,
                scale=scale,
                size=args.crop_size,
            )
        if args.masked_patches:
            config.losses.masked_patches = default.loss(weight=factor * args.masked_patches)
    return config

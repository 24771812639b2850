"""CLIP-COCO (Kamath et al. 2024): CLIP finetuned on COCO captions, the control of HP+HN.

  python -m vlc_jax.main --workdir runs/clip_coco \\
    --config configs/clip_coco.py:weights=ViT-B-32.pt,tokenizer=FILE,path=captions.json

The paper gives model, data (train2017), 5 epochs and about 3 hours on 4 A100. Batch, rate and
decay are the defaults of the code it builds on (SVLC). That code's 10,000 steps of warmup are
more than the 5,775 of the run: schedule=svlc_parity keeps them, so that the rate only rises, to
58 % of 5e-6; schedule=cosine (the default) warms up for a tenth of the run.

Arguments: weights, tokenizer, path (COCO captions JSON, a table, or a folder that vlc-jax prepare
wrote), image_folder, validation, root, sets, batch, family, variant and size as in
configs/clip_ft.py; schedule.
"""

from types import SimpleNamespace

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.configs.common import arguments, pretrained

ARGUMENTS = {
    **pretrained.FINETUNING,
    "sets": f"{pretrained.RETRIEVAL}+replace+swap",
    "batch": 512,  # 128 on each of 4 GPUs
    "family": arguments.OneOf(*pretrained.FAMILIES_OF_CLIP),
    "variant": "B/32",
    "size": 224,
    "schedule": arguments.OneOf("cosine", "svlc_parity"),
}


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    return make(arguments.parse(argument, **ARGUMENTS))


def make(args: SimpleNamespace) -> ConfigDict:
    """The config for parsed arguments, which HN and HP+HN change."""
    config = default.get_config()
    with config.unlocked():
        pretrained.FAMILIES[args.family](config, args, args.size)
        pretrained.five_epochs(config, args)
        # 5 times over 591,753 captions; a record here is an image with its five captions, of which
        # an epoch draws one. For a table with a row per caption: --config.epochs=5
        config.epochs = 25.0
        pretrained.use_random_crops(config)
        config.optimizer.warmup_steps = 577
        if args.schedule == "svlc_parity":
            config.optimizer.schedule, config.optimizer.warmup_steps = "constant", 10_000
        config.optimizer.learning_rate = 5e-6
        config.optimizer.weight_decay = 0.1
    return config

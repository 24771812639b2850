"""SigLIP finetuned on image-caption pairs with the sigmoid loss: the control row "SigLIP FT".

  python -m vlc_jax.main --workdir runs/siglip_ft \\
    --config configs/siglip_ft.py:weights=FOLDER,tokenizer=FILE,path=captions.json

The row "FT" of SigLIP-L/16-384 in the left / right study on What'sUp (ACL 2025), on 4 GPUs, whose
numbers `vlc-jax --list leftright` prints. Random crops (.9 to 1 of the area) are open_clip's, their
trainer; evaluation squashes the image to a square.

Arguments: weights (Hugging Face or open_clip SigLIP, big_vision npz); family (siglip or siglip2);
tokenizer (.model, tokenizer.json or a folder; not needed where the weights' holds it); path (a
table, or a folder that vlc-jax prepare wrote); image_folder; validation (likewise, for
retrieval); root, sets (as in configs/clip_ft.py); batch; variant; size (pixels); image_tower
(locked, as in the paper, or unlocked).
"""

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.configs.common import arguments, pretrained


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(
        argument,
        **pretrained.FINETUNING,
        sets=pretrained.WHATSUP,
        batch=512,  # 128 on each of 4 GPUs
        family=arguments.OneOf("siglip", "siglip2"),
        variant="SigLIP-L/16-256",
        size=384,
        image_tower=arguments.OneOf("locked", "unlocked"),
    )
    config = default.get_config()
    with config.unlocked():
        pretrained.FAMILIES[args.family](config, args, args.size)
        pretrained.five_epochs(config, args)
        pretrained.use_random_crops(config)
        config.losses = ConfigDict({"sigmoid": default.loss(weight=1.0)})
        config.optimizer.learning_rate = 5e-6
        config.optimizer.weight_decay = 0.0
        if args.image_tower == "locked":
            config.frozen = ("image",)
    return config

"""Zero-shot evaluation of pretrained CLIP, SigLIP, EVA-CLIP and BLIP weights.

  python -m vlc_jax.main --mode eval --workdir runs/zero_shot \\
    --config configs/eval/zero_shot.py:weights=FILE,tokenizer=FILE,path=DATA/captions.json

Arguments: weights (a file or folder of OpenAI, open_clip, Hugging Face or big_vision); family
(clip, for EVA-CLIP too, siglip, siglip2, or blip, whose variant and size come from the weights);
variant (vlc_jax/models/variants.py); tokenizer (its file or folder; not needed if it is in the
folder of the weights); size (pixels); path, image_folder (a table of images and captions, or a
folder that vlc-jax prepare wrote, for retrieval: all of it). CLIP weights that are not OpenAI's
need their activation: --config.model.activation=gelu; EVA-CLIP's comes with the variant. Files
beside the weights that contradict the config are refused.
"""

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.configs.common import arguments, pretrained


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(
        argument, **pretrained.ARGUMENTS, family="clip", variant="B/32", size=224
    )
    config = default.get_config()
    with config.unlocked():
        pretrained.use_family(config, args)
        config.evals = ConfigDict({"retrieval": {"split": "all"}})
    return config

"""CLIP or SigLIP finetuned on the answers of LLaVA's conversations, with a frozen image tower.

  python -m vlc_jax.main --workdir runs/llava_ft \\
    --config configs/llava/clip_ft.py:weights=ViT-L-14-336px.pt,path=A.json+B.json,image_folder=A+B

The control of configs/leftright.py, which differs in its negatives alone: the rows "finetuning" of
"Exploring How Generative MLLMs Perceive More Than CLIP with the Same Vision Encoder" (ACL 2025;
table on training data). EVA-CLIP is variant=EVA01-g/14,size=224.

Arguments: the arguments of configs/leftright.py:data=coco.
"""

from ml_collections import ConfigDict

from vlc_jax.configs import leftright
from vlc_jax.configs.common import arguments


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(
        argument, **leftright.COCO | {"negatives": arguments.OneOf("none", "leftright")}
    )
    return leftright.make(args)

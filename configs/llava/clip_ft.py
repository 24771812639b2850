"""CLIP or SigLIP finetuned on the answers of LLaVA's conversations, with a frozen image tower.

  python -m vlc_jax.main --workdir runs/llava_ft \\
    --config configs/llava/clip_ft.py:weights=ViT-L-14-336px.pt,path=A.json+B.json,image_folder=A+B

The control of configs/leftright.py, which differs in its negatives alone. Must reproduce the
rows "finetuning" of "Exploring How Generative MLLMs Perceive More Than CLIP with the Same Vision
Encoder" (ACL 2025; table on training data): What'sUp left / right, individual and pairs, A then B:
CLIP 50.5 and 1.9, 53.9 and 5.9 (before 49.0 and 1.9, 54.9 and 10.8); SigLIP 49.0 and 1.0, 51.0 and
3.9 (before 50.0 and 1.9, 51.5 and 5.9); EVA-CLIP (variant=EVA01-g/14,size=224) 50.0 and 4.9, 48.5
and 2.0 (before 49.0 and 1.0, 50.1 and 4.9; with left / right negatives 50.0 and 1.9, 48.0 and 2.0).
Not yet run at full size here.

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

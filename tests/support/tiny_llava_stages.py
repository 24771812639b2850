"""LLaVA's two stages in seconds: a shallow CLIP and a language model of three narrow blocks.

Arguments: stage=1|2; root (a folder as `write` of tests/end_to_end/test_llava_training.py makes
it); weights; steps=N.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import arguments
from vlc_jax.configs.llava import stage1, stage2

IMAGE = {"width": 16, "depth": 2, "heads": 2, "patch_size": 4, "projection": None}


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(argument, stage=1, root="", weights="", steps=2)
    root = args.root
    given = f"weights={args.weights or f'{root}/clip'},path={root}/llava.json,vocab=128"
    given += f",image_folder={root}/photos,tokenizer={root}/tokenizer.json"
    if args.stage == 1:
        config = stage1.get_config(f"{given},language_model={root}/lm")
    else:
        config = stage2.get_config(given)
    with config.unlocked():
        config.steps, config.epochs, config.batch_size = args.steps, None, 4
        config.sub_batches = 1
        config.model.image, config.input.image_size = ConfigDict(IMAGE), 8
        config.model.head.decoder = "tiny"
        config.model.dtype = "bfloat16"  # as on accelerators: the decoder is held in it
        config.text.context_length, config.text.lengths = 48, (24,)
        config.lora.rank, config.optimizer.warmup_steps = 4, 1
        config.input.preview, config.log_every, config.checkpoint.every = 4, 1, 1
    return config

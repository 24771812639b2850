"""CLIP on your own images: a table of image names and captions, and the folder of the images.

  python -m vlc_jax.main --config configs/records.py:path=DATA/captions.jsonl --workdir runs/mine

Arguments: path (.jsonl, .tsv, .csv or COCO captions .json); image_folder (default: the folder of
the table); holdout (share of the images kept for validation, default 0.2); steps; batch (pairs per
step); size (pixels); variant (vlc_jax/models/variants.py). Other columns, tokenizers and crops:
--config.input.records.caption_column=title and so on (configs/default.py lists all fields).
"""

from ml_collections import ConfigDict

from configs import default
from configs.common import arguments


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(
        argument,
        path="",
        image_folder="",
        holdout=0.2,
        steps=1000,
        batch=64,
        size=64,
        variant="mini",
    )
    config = default.get_config()
    with config.unlocked():
        config.steps = args.steps
        config.batch_size = args.batch
        config.optimizer.warmup_steps = min(100, args.steps // 10)
        config.input.source = "records"
        config.input.records.path = args.path
        config.input.records.image_folder = args.image_folder or None
        config.input.records.holdout = args.holdout
        config.input.image_size = args.size
        config.input.crop = "random_resized"
        config.text.tokenizer = "bytes"
        config.text.context_length = 77
        config.model.variant = args.variant
        config.model.vocab_size = 260
        config.evals = ConfigDict({"retrieval": {"split": "validation"}})
    return config

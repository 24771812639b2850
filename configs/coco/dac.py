"""DAC (Doveh et al. 2023, "Dense and aligned captions"): multiple-instance loss on a bag of dense
captions per image, with a hard negative of each.

  python -m vlc_jax.main --workdir runs/dac \\
    --config configs/coco/dac.py:weights=ViT-B-32.pt,path=cc3m.jsonl,language_model=FOLDER

Must reproduce (Kamath et al. 2024, table 1: original, augmented, brittleness) with captions of a
language model (DAC-LLM) REPLACE 87.6 / 48.9 / 40.1, SWAP 72.0 / 61.1 / 21.6; with captions of the
parts of the image (DAC-SAM) REPLACE 86.9 / 55.9 / 32.5, SWAP 69.5 / 56.5 / 25.6. Not yet run at
full size here; an estimate: five times over 2.9 million images, 22 texts each, take 17 hours of one
A100 at 30 % of its bfloat16 peak.

The dense captions are the column "positives" of a JSONL table (any number per image), such as
vlc-jax write_hard_texts dac_dense writes, or what shards made of it hold; with the
authors its captions are those of BLIP-2. They draw the bag with repetition from dense captions and
caption, here without, from the dense captions; a sentence or negative that is not there is left
out, with them it is an empty text.

Arguments: those of configs/coco/svlc.py; bag (sentences per image).
"""

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.configs.coco import svlc
from vlc_jax.configs.common import arguments, pretrained


def get_config(argument: str | None = None) -> ConfigDict:
    defaults = {**svlc.ARGUMENTS, "batch": 32}  # README, like bag
    args = arguments.parse(argument, **defaults, bag=10)
    config = svlc.make(args)
    count = config.input.negatives.count
    with config.unlocked():
        if args.in_batch:  # those of the bag are further texts for no other image
            config.losses.negclip.negative_range = (0, count)
        config.losses.svlc_negative = default.loss(
            weight=1.0, negative_range=(0, count)
        )  # of the caption
        config.losses.dac_mil = default.loss(weight=1.0)
        config.losses.dac_negative_bag = default.loss(
            weight=1.0, negative_range=(count, None)
        )  # of the bag
        config.input.negatives.of_positives = 1
        config.input.records.positives_column = "positives"
        pretrained.use_texts(config.input.positives, args.bag, "skip", {"from_record": 1.0})
    return config

"""SVLC+Pos (Doveh et al. 2023): SVLC with a hard positive that is pulled to image and caption.

  python -m vlc_jax.main --workdir runs/svlc_pos \\
    --config configs/coco/svlc_pos.py:weights=ViT-B-32.pt,path=cc3m.jsonl,language_model=FOLDER

Must reproduce (Kamath et al. 2024, table 1: original, augmented, brittleness) REPLACE 64.3 / 45.0 /
29.8, SWAP 56.5 / 45.4 / 22.8. Not yet run at full size here; an estimate: five times over 2.9
million images, three texts each, take 3.2 hours of one A100 at 30 % of its bfloat16 peak.

The positives are the column "positives" of a JSONL table, or what shards made of it hold; the
authors had BLOOM write one per caption, and vlc-jax write_hard_texts svlc_paraphrase
asks any model.
Where there is none, the caption itself is the positive, as in the authors' code.

Arguments: those of configs/coco/svlc.py; symmetric (both directions of the loss of positives, the
authors' option).
"""

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.configs.coco import svlc
from vlc_jax.configs.common import arguments, pretrained


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(argument, **svlc.ARGUMENTS, symmetric=False)
    config = svlc.make(args)
    with config.unlocked():
        analogy = "analogy_symmetric" if args.symmetric else "analogy"
        config.losses[analogy] = default.loss(weight=1.0)
        config.input.records.positives_column = "positives"
        pretrained.use_texts(config.input.positives, 1, "self", {"from_record": 1.0})
    return config

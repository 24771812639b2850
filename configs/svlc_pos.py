"""SVLC+Pos (Doveh et al. 2023): SVLC with a hard positive that is pulled to image and caption.

  python -m vlc_jax.main --config configs/svlc_pos.py --workdir runs/svlc_pos
  python -m vlc_jax.main --workdir runs/svlc_pos_coco --config \\
    configs/svlc_pos.py:data=coco,weights=ViT-B-32.pt,path=cc3m.jsonl,language_model=FOLDER

Positives of data=coco are the column "positives" of a JSONL table, or of shards made from one; the
authors had BLOOM write one per caption; the preset svlc_paraphrase of vlc-jax write_hard_texts asks
a model. On the scenes they are paraphrases, too: the same content with another beginning, order and
synonyms of set A. A caption without a positive is its own, as in the authors' code.

Arguments: data=scenes|coco; the arguments of configs/svlc.py; symmetric (both directions of the
analogy loss, the authors' option).
"""

from ml_collections import ConfigDict

from vlc_jax.configs import default, svlc
from vlc_jax.configs.common import arguments, finetuning, pretrained

OPTIONS = {"symmetric": False}


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = arguments.parse_data(argument, scenes=svlc.SCENES | OPTIONS, coco=svlc.COCO | OPTIONS)
    config = svlc.make(args)
    with config.unlocked():
        analogy = "analogy_symmetric" if args.symmetric else "analogy"
        config.losses[analogy] = default.loss(weight=1.0)
        if args.data == "scenes":
            finetuning.use_positives(config, 1, "self", scenes_paraphrase=1.0)
        else:
            pretrained.use_columns(config, positives_column="positives")
            pretrained.use_texts(config.input.positives, 1, "self", {"from_record": 1.0})
    return config

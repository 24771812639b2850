"""CLIP ViT-B/32 (Radford et al. 2021) from scratch, on shards of image-text pairs.

  python -m vlc_jax.main --workdir runs/clip_b32 \\
    --config configs/pretrain/clip_b32.py:path=SHARDS,tokenizer=FILE

open_clip trained it on LAION-400M: batch 32,768 on 128 A100 of 40 GB, about 36 hours, 4,600
GPU-hours (docs/PRETRAINED.md). The authors' 400 million pairs are not public.

Hyper-parameters: tables 18 and 20 of the paper. Not as there: Adam's moments and the parameters of
the text tower are float32; crops are open_clip's (.9 to 1 of the area); both towers are initialised
as their text tower (vlc_jax/models/layers.py).

Arguments: path (a folder that vlc-jax prepare wrote, of LAION-400M from the tars of
img2dataset; or a table); tokenizer (bpe_simple_vocab_16e6.txt.gz or Hugging Face's; found where
open_clip or clip is installed); epochs; batch; image_folder; validation (a table or such a folder,
for retrieval); imagenet (a folder with val/CLASS/*.JPEG, and CLIP_benchmark's en_classnames.json
and en_zeroshot_classification_templates.json, for zero-shot accuracy).
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import arguments, pretraining


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(argument, **pretraining.ARGUMENTS, epochs=32.0)
    return pretraining.clip(args, "B/32", rate=5e-4)

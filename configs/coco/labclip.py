"""LABCLIP (Koishigarina et al. 2025): a linear map of the text embedding of a frozen CLIP.

  python -m vlc_jax.main --workdir runs/labclip \\
    --config configs/coco/labclip.py:weights=ViT-B-32.pt,path=captions_train2014.json

Must reproduce (paper, trained on COCO, B/32) VG-Attribution .685 and SugarCrepe swap-att .746. Not
yet run at full size here; with stored features (vlc-jax cache_features) an epoch
reads two vectors per caption. Adam of 1e-3 and batch 1024 are the authors', and so are 10 epochs
of five captions: here one of the five is drawn at each reading, so 50. Negatives have nouns and
adjectives exchanged at random (ARO's shuffle). From their code: the temperature is learned from 1.

Arguments: those of configs/coco/clip_ft.py; size; image_tower, text_tower=locked|unlocked;
tagger=spacy:en_core_web_sm.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.coco import clip_ft
from vlc_jax.configs.common import arguments, heads, pretrained

ARGUMENTS = clip_ft.ARGUMENTS | heads.TOWERS
ARGUMENTS |= {"batch": 1024, "size": 224, "tagger": "spacy:en_core_web_sm"}


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = heads.check(arguments.parse(argument, **ARGUMENTS))
    config = clip_ft.make(args)
    with config.unlocked():
        config.input.image_size = args.size
        config.input.crop = "centre"  # the authors store the embeddings of CLIP's own preprocessing
        shuffle = "shuffle_nouns_and_adjectives"
        options = {shuffle: pretrained.AUTHORS | {"tagger": args.tagger}}
        pretrained.use_texts(config.input.negatives, 1, "skip", {shuffle: 1.0}, **options)
        heads.labclip(config, args)
        heads.adam(config, rate=1e-3, epochs=50.0)
    return config

"""LABCLIP (Koishigarina et al. 2025): a linear map of the text embedding of a frozen CLIP.

  python -m vlc_jax.main --config configs/labclip.py --workdir runs/labclip
  python -m vlc_jax.main --config configs/labclip.py:opposite=text --workdir runs/lab_text
  python -m vlc_jax.main --workdir runs/labclip_coco \\
    --config configs/labclip.py:data=coco,weights=ViT-B-32.pt,path=captions_train2014.json

On COCO Adam of 1e-3 and batch 1024 are the authors', and so are 10 epochs of five captions: here
one of the five is drawn at each reading, so 50; with stored features (vlc-jax cache_features) an
epoch reads two vectors per caption. Negatives have nouns and adjectives exchanged at random (ARO's
shuffle). From their code: the temperature is learned from 1.

Arguments: data=scenes|coco; with data=scenes the arguments of configs/common/heads.py;
opposite=image (hard images), or text (as the authors train: none, and per caption a further text
with words or objects exchanged). With data=coco the arguments of configs/clip_ft.py;
image_tower, text_tower=locked|unlocked; tagger=spacy:en_core_web_sm.
"""

from types import SimpleNamespace

from ml_collections import ConfigDict

from vlc_jax.configs import clip_ft
from vlc_jax.configs.common import arguments, finetuning, heads, pretrained

SCENES = heads.SCENES | heads.TOWERS | {"opposite": arguments.OneOf("image", "text")}
COCO = clip_ft.COCO | heads.TOWERS
COCO |= {"sets": "vg_attribution+sugarcrepe"}
COCO |= {"batch": 1024, "tagger": "spacy:en_core_web_sm"}
SHUFFLE = "shuffle_nouns_and_adjectives"


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = arguments.parse_data(argument, scenes=SCENES, coco=COCO)
    return _on_scenes(args) if args.data == "scenes" else _on_coco(args)


def _on_scenes(args: SimpleNamespace) -> ConfigDict:
    config = heads.on_scenes(args, hard_images=args.opposite == "image")
    with config.unlocked():
        if args.opposite == "text":
            finetuning.use_negatives(config, scenes_swap=0.5, scenes_reverse=0.5)
        heads.labclip(config, args)
        config.optimizer.learning_rate = 1e-3
    return config


def _on_coco(args: SimpleNamespace) -> ConfigDict:
    config = clip_ft.make(args)
    with config.unlocked():
        # no random crops: the authors store the embeddings of CLIP's own preprocessing
        config.input.crop = config.input.eval_crop or "centre"
        options = {SHUFFLE: pretrained.AUTHORS | {"tagger": args.tagger}}
        pretrained.use_texts(config.input.negatives, 1, "skip", {SHUFFLE: 1.0}, **options)
        heads.labclip(config, args)
        heads.adam(config, rate=1e-3, epochs=50.0)
    return config

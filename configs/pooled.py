"""Text-conditioned pooling on a frozen CLIP: patches and queries mapped by a matrix each, and
scored by a rule (vlc_jax/models/pooling.py), by default MaxSim.

  python -m vlc_jax.main --config configs/pooled.py --workdir runs/maxsim
  python -m vlc_jax.main --config configs/pooled.py:rule=c2lip --workdir runs/softmax_pooling
  python -m vlc_jax.main --workdir runs/maxsim_coco --config \\
    configs/pooled.py:data=coco,weights=ViT-B-32.pt,tokenizer=FILE,path=captions_train2014.json

rule=maxsim is the late interaction of ColBERT (Khattab and Zaharia 2020), in FILIP (Yao et al.
2022) the similarity of a text to an image; FILIP adds the mean over patches of their best token,
and has other towers, data and sizes, so that no published number is of this config. Rate, batch and
epochs are those of configs/labclip.py. Both matrices start as the identity, so that the first
scores are those of the towers; features can be stored (vlc-jax cache_features).

Arguments: data=scenes|coco; rule=maxsim|c2lip|pacl|sparc; image_tower, text_tower=locked|unlocked.
With data=scenes the arguments of configs/common/heads.py, and hard_images=0. With data=coco the
arguments of configs/clip_ft.py.
"""

from ml_collections import ConfigDict

from vlc_jax.configs import clip_ft, default
from vlc_jax.configs.common import arguments, heads, pretrained

RULE = {"rule": arguments.OneOf("maxsim", "c2lip", "pacl", "sparc")}
SCENES = heads.SCENES | heads.TOWERS | RULE | {"hard_images": 1}
COCO = clip_ft.COCO | heads.TOWERS | RULE
COCO |= {"batch": 1024, "sets": pretrained.RETRIEVAL}


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = arguments.parse_data(argument, scenes=SCENES, coco=COCO)
    is_scenes = args.data == "scenes"
    config = heads.on_scenes(args, bool(args.hard_images)) if is_scenes else clip_ft.make(args)
    with config.unlocked():
        if is_scenes:
            config.optimizer.learning_rate = 1e-3
        else:
            config.input.crop = config.input.eval_crop or "centre"
            heads.adam(config, rate=1e-3, epochs=50.0)
        heads.use_pooled(config, args.rule)
        config.model.head.update(scoring="local", mapping="linear")
        config.model.logit_scale_init, config.frozen = 1 / 0.07, heads.towers(args)
        config.losses = ConfigDict({"infonce": default.loss(weight=1.0)})
    return config

"""VLM2Vec on the scenes: a miniature LLaVA turned into an embedder of (image, question) pairs.

  python -m vlc_jax.main --config configs/scenes/vlm2vec.py --workdir runs/vlm2vec
  python -m vlc_jax.main --config configs/scenes/vlm2vec.py:question=0 --workdir runs/vlm2vec_plain

Starts from the projector and decoder of `--config.init_from=WORKDIR`, a run of
configs/scenes/llava.py with the same select, width, depth and positions; otherwise the run trains
one first, in WORKDIR/pretrain. The score is the cosine of an image with its question, and of a
text. The target is the caption, not the bare answer.

question=1: an image comes with the question that its caption answers, "is the blue square left of
or right of the red circle" (input_pipeline/scenes/questions.py); question=0: with none, as in the
ablation of "Exploring How Generative MLLMs Perceive More Than CLIP with the Same Vision Encoder"
(ACL 2025), where pairs of What'sUp then fall from 95.1, 35.9, 100 and 22.5 to 0, 1.9, 2 and 1
(A left / right, A on / under, B left / right, B front / behind; chance 25).

Not as in the paper: every second picture is the one before with its two objects or two colours
exchanged (relations=1: objects alone; hard_images=0: none), since among unrelated pictures the
words of the question already give the caption; train=full, all parameters of projector and decoder,
or train=dora, adapters as in the paper. Further arguments: steps=N, batch=N, select, width, depth,
positions and those of configs/common/heads.py that all heads have but text_tower.
"""

from ml_collections import ConfigDict

from configs import default
from configs.common import heads, scenes
from configs.scenes import llava


def get_config(argument: str | None = None) -> ConfigDict:
    own = {"image_tower": "locked", "question": 1, "train": "full", "relations": 0, "batch": 64}
    fixed = {"steps": 2000, "phrases": "plain", "hard_images": 1}
    args = heads.parse_scenes(argument, **llava.SIZES | own | fixed)
    config = heads.on_scenes(args)
    with config.unlocked():
        config.pretrain = llava.get_config({name: getattr(args, name) for name in llava.OF_FIRST})
        llava.use(config, args, "vlm2vec", heads.TEMPERATURE_OF_VLM2VEC)
        if args.train == "dora":
            heads.use_dora(config)
        if args.hard_images:  # of which a caption names what its question asks
            shares = {"relation": 1.0} if args.relations else {"relation": 0.5, "attribute": 0.5}
            config.input.scenes.hard_images = tuple(shares.items())
        config.input.question = "{}" if args.question else ""
        config.losses = ConfigDict({"infonce": default.loss(weight=1.0, direction="image_to_text")})
        config.evals = ConfigDict(scenes.evaluations(args.split, world=args.world))
    return config

"""VLM2Vec on the scenes: a captioner turned into an embedder of (image, question) pairs.

  python -m vlc_jax.main --config configs/scenes/vlm2vec.py --workdir runs/vlm2vec
  python -m vlc_jax.main --config configs/scenes/vlm2vec.py:question=0 --workdir runs/vlm2vec_plain

Starts from a captioner, `--config.init_from=WORKDIR` of configs/scenes/captioner.py with the same
select, width, depth and positions; otherwise the run trains one first, in WORKDIR/pretrain. The
score is the cosine of (image, question) and text. The target is the caption, not the bare answer.

question=1: an image comes with the question that its caption answers, "is the blue square left of
or right of the red circle" (input_pipeline/scenes/questions.py); question=0: without one, as in the
ablation of "Exploring How Generative MLLMs Perceive More Than CLIP with the Same Vision Encoder"
(ACL 2025).

Not as in the paper: every second image is the one before with two objects or two colours exchanged
(hard_images=0 leaves these out), since among unrelated images the words of the question already
identify the caption; train=full, all parameters of projector and decoder, or train=dora,
adapters as in the paper. Further arguments: relations=1: objects alone are exchanged, and the
learning rate is 2e-3, with which a decoder that knows relations (captioner:relations=1) learns them
as an embedder in some seeds of batch=64 (docs/results.md); steps=N, batch=N, select, width, depth,
positions and the common ones of configs/common/heads.py.
"""

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.configs.common import arguments, heads, scenes
from vlc_jax.configs.scenes import captioner

SIZES = ("select", "width", "depth", "positions")
OF_CAPTIONER = (*SIZES, "relations", "base", "world", "split", "phrases", "tower_pooling")

ARGUMENTS = {
    **heads.PLAIN_SCENES,
    **heads.TOWERS,
    "steps": 1500,
    "select": heads.SELECT,
    "width": 128,
    "depth": 3,
    "hard_images": 1,
    "positions": 0,
    "question": arguments.OneOf(1, 0),
    "train": arguments.OneOf("full", "dora"),
    "relations": 0,
    "batch": 128,
}


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(argument, **ARGUMENTS)
    config = heads.on_scenes(args, bool(args.hard_images))
    with config.unlocked():
        config.pretrain = captioner.get_config({name: vars(args)[name] for name in OF_CAPTIONER})
        sizes = {name: vars(args)[name] for name in SIZES}
        sizes["positions"] = bool(args.positions)
        heads.use(config, "vlm2vec", heads.TEMPERATURE_OF_VLM2VEC, heads.towers(args), **sizes)
        if args.train == "dora":
            heads.use_dora(config)
        config.batch_size = args.batch
        if args.hard_images:  # their captions differ in what the question asks for
            shares = {"relation": 1.0} if args.relations else {"relation": 0.5, "attribute": 0.5}
            config.input.scenes.hard_images = tuple(shares.items())
        if args.relations:
            config.optimizer.learning_rate = 2e-3
        config.input.question = "{}" if args.question else ""
        config.losses = ConfigDict({"infonce": default.loss(weight=1.0, direction="image_to_text")})
        config.evals = ConfigDict(scenes.evaluations(args.split, world=args.world))
    return config

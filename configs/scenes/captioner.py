"""A captioner: a small decoder over the tokens of a frozen CLIP, trained on captions; its score is
the log probability of a caption given the image.

  python -m vlc_jax.main --config configs/scenes/captioner.py --workdir runs/captioner
  python -m vlc_jax.main --config configs/scenes/captioner.py:select=pooled --workdir runs/pooled

Arguments: select=patch, or pooled: the image's embedding alone, as LLaVA with [CLS] only; width=N
and depth=N of the decoder; batch=N; relations=1: images of two objects whose captions all state a
relation, so that the decoder learns relations (2,400 steps of batch=256; docs/results.md);
hard_images=1: every second image is the one before with two objects or two colours exchanged;
positions=1: a trained vector for each image token; question=1: captions answer a question in front
of them, "is the blue square left of or right of the red circle"
(input_pipeline/scenes/questions.py); and the common ones of configs/common/heads.py.
Retrieval is among 100 candidates, where other configs have 1,000.
"""

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.configs.common import arguments, heads, scenes

ARGUMENTS = {
    **heads.PLAIN_SCENES,
    **heads.TOWERS,
    "steps": 1500,
    "select": heads.SELECT,
    "width": 128,
    "depth": 3,
    "hard_images": 0,
    "positions": 0,
    "question": arguments.OneOf(0, 1),
    "relations": 0,
    "batch": 128,
}


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = arguments.parse(argument, **ARGUMENTS)
    config = heads.on_scenes(args, bool(args.hard_images))
    with config.unlocked():
        heads.use(
            config,
            "captioner",
            temperature=1.0,
            frozen=heads.towers(args),
            select=args.select,
            width=args.width,
            depth=args.depth,
            positions=bool(args.positions),
        )
        config.batch_size = args.batch
        if args.relations:
            options = {"relation": 1.0, "single": 0.0, "place": 0.0}
            config.input.scenes.caption_options.update(options)
            config.input.scenes.world_options.counts = (0.0, 1.0, 0.0)
        config.input.question = "{}" if args.question else ""
        config.losses = ConfigDict({"caption": default.loss(weight=1.0, reduction="token")})
        config.optimizer.learning_rate = 2e-3
        # the decoder runs on every pair: 1,000 x 1,000 would take longer than training
        config.evals = ConfigDict(scenes.evaluations(args.split, candidates=100, world=args.world))
    return config

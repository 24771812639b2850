"""A run of seconds on the scenes, for tests: a shallow model, few pairs, two small benchmarks.

Arguments: steps=N; pretrain (six steps of another seed come first).
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import arguments
from vlc_jax.configs.scenes import clip


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(argument, steps=12, pretrain=False)
    config = clip.get_config()
    with config.unlocked():
        config.steps = args.steps
        config.batch_size = 16
        config.model.image, config.model.text = {"depth": 1}, {"depth": 1}
        config.optimizer.warmup_steps = 2
        config.input.scenes.count = 64
        config.input.preview = 8
        config.log_every = 1
        config.checkpoint.every = 4
        config.eval.every = 6
        config.eval.batch_size = 16
        config.evals = ConfigDict(
            {
                "scenes_retrieval": {"split": "validation", "count": 32},
                "scenes_attribute_swap": {"split": "validation", "count": 32},
            }
        )
        if args.pretrain:
            config.pretrain = get_config("steps=6")
            config.pretrain.seed = 1
    return config

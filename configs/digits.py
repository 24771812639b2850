"""CLIP on scikit-learn's 1,797 real handwritten digits: zero-shot accuracy on held-out digits.

  python -m vlc_jax.main --config configs/digits.py --workdir runs/digits

Arguments: steps=N.
"""

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.configs.common import arguments


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(argument, steps=300)
    config = default.get_config()
    with config.unlocked():
        config.steps = args.steps
        config.batch_size = 128
        config.input.source = "digits"
        config.input.image_size = 32
        config.text.tokenizer = "digits"
        config.text.context_length = 12
        config.optimizer.warmup_steps = min(30, args.steps // 10)
        config.eval.every = 100
        config.evals = ConfigDict({"zeroshot": {"split": "test"}})
    return config

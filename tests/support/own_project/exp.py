"""A config of the project. Argument: the module of its names; "" for those of the plug-in."""

from vlc_jax.configs import default


def get_config(module="birdwatch.parts."):
    config = default.get_config()
    with config.unlocked():
        config.steps, config.batch_size, config.optimizer.warmup_steps = 2, 4, 1
        config.checkpoint.every = 1
        config.input.source, config.input.source_options = f"{module}Birds", {"count": 8}
        config.input.image_size, config.input.preview = 16, 4
        config.text.tokenizer, config.text.context_length = f"{module}Letters", 12
        config.model.name, config.model.variant = f"{module}Halved", f"{module}TINY"
        config.model.vocab_size = 40
        config.evals.birds = {"reader": f"{module}PAIRS", "count": 3}
    return config

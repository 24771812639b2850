"""Pretraining from scratch on prepared shards: CLIP's and SigLIP's published hyper-parameters.

Losses run as a ring over the devices: of a batch of 32,768 on D devices, each holds one tile of
(32,768 / D)^2 scores instead of its rows of the whole matrix.
"""

import os
from types import SimpleNamespace

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from vlc_jax.configs import default
from vlc_jax.configs.common import pretrained

ARGUMENTS = {
    "path": "",
    "tokenizer": "",
    "image_folder": "",
    "validation": "",
    "imagenet": "",
    "batch": 32_768,
}
SIGLIP_RATE = 1e-3
SIGLIP_DECAY = 1e-4
SIGLIP_WARMUP = 200_000_000  # examples (appendix A, of SigLiT; none is given for SigLIP)


def clip(args: SimpleNamespace, variant: str, rate: float, remat: str = "none") -> ConfigDict:
    """CLIP for args.epochs epochs (Radford et al. 2021, tables 18 and 20)."""
    config = default.get_config()
    with config.unlocked():
        pretrained.use_clip(config, _with_variant(args, variant))
        _use_long_run(config, args, "infonce")
        config.epochs = args.epochs
        config.input.crop = "random_resized"  # their only augmentation; the area is open_clip's
        config.model.remat = remat
        config.optimizer.learning_rate = rate
        config.optimizer.warmup_steps = 2000
        config.optimizer.weight_decay = 0.2
        config.optimizer.b2, config.optimizer.eps = 0.98, 1e-6
        config.optimizer.clip_norm = None  # none is given; open_clip's default
    return config


def siglip(
    args: SimpleNamespace, variant: str, size: int, tokens: int, examples: int, remat: str = "none"
) -> ConfigDict:
    """SigLIP for `examples` pairs at `size` pixels and `tokens` tokens (Zhai et al. 2023)."""
    config = default.get_config()
    with config.unlocked():
        pretrained.use_siglip(config, _with_variant(args, variant), size)
        _use_long_run(config, args, "sigmoid")
        config.examples = examples
        config.text.context_length = tokens
        config.model.remat = remat
        config.optimizer.learning_rate = SIGLIP_RATE
        config.optimizer.warmup_steps = SIGLIP_WARMUP // args.batch
        # big_vision adds the decay behind the learning rate, AdamW scales it by it
        config.optimizer.weight_decay = SIGLIP_DECAY / SIGLIP_RATE
        # big_vision decays kernels alone
        config.optimizer.decay_exclude = ".*/(embedding|position_embedding|probe)"
        config.optimizer.b2, config.optimizer.eps = 0.95, 1e-8
    return config


def go_on_from(first: ConfigDict, config: ConfigDict) -> None:
    """SigLIP at another resolution: a 100 times smaller learning rate and no weight decay, from
    config.init_from, or from the run `first` if that is not set (Zhai et al. 2023, section 4.6)."""
    if not config.init_from:
        config.pretrain = first
    config.optimizer.learning_rate = SIGLIP_RATE / 100
    config.optimizer.weight_decay = 0.0


def _with_variant(args: SimpleNamespace, variant: str) -> SimpleNamespace:
    return SimpleNamespace(**{"weights": ""} | vars(args) | {"variant": variant})


def _use_long_run(config: ConfigDict, args: SimpleNamespace, loss: str) -> None:
    """Batch, loss, evaluations, and how often a run of 300,000 steps saves and evaluates."""
    config.steps, config.batch_size = placeholder(int), args.batch
    config.losses = ConfigDict({loss: default.loss(weight=1.0, implementation="ring")})
    # one bad batch in 300,000 steps must not undo them
    config.optimizer.spike_guard = (10.0, 10)
    config.log_every = 100
    config.checkpoint.every = 1000
    config.eval.every = 10_000
    pretrained.validate(config, args)
    if args.imagenet:
        texts = {
            "class_names": "en_classnames.json:imagenet1k",
            "templates": "en_zeroshot_classification_templates.json:imagenet1k",
        }
        files = {name: os.path.join(args.imagenet, file) for name, file in texts.items()}
        source = {"source": "class_folders", "path": args.imagenet, "split": "val"}
        config.evals.zeroshot = ConfigDict(source | files)

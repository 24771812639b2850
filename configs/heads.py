"""What the configs of heads on frozen towers share, on the scenes.

The towers are those of a CLIP of the scenes with mean pooling, which trains its patch tokens:
`--config.init_from=WORKDIR` names one, otherwise the run trains it first, in WORKDIR/pretrain.
Arguments of all of them: steps=N; base=clip, or relations (NegCLIP with hard images from such a
CLIP, which knows what is left of what); towers=frozen, or trained; world and split as those of
configs/scenes/clip.py. Every second row of a batch is the picture before with its objects or its
colours exchanged.
"""

from types import SimpleNamespace
from typing import Any

from ml_collections import ConfigDict

from configs import finetuning
from configs.scenes import hard_images

TOWERS = ("frozen", "trained")


def parse(argument: str | None, **defaults: Any) -> SimpleNamespace:
    """The arguments of a config: those above, and its own."""
    args = finetuning.parse(argument, **{"pooling": "mean", "towers": "frozen"} | defaults)
    if args.towers not in TOWERS:
        raise ValueError(f"towers is one of {', '.join(TOWERS)}; got {args.towers!r}")
    return args


def get_config(args: SimpleNamespace, name: str, temperature: float, **head: Any) -> ConfigDict:
    """A head of that name with these fields; logits are scores / temperature, which stays."""
    config = finetuning.get_config(args)
    with config.unlocked():
        config.model.name = name
        config.model.head = ConfigDict(head)
        config.model.logit_scale_init = 1 / temperature
        config.frozen = ("image", "text") if args.towers == "frozen" else ()
        config.optimizer.multipliers = (("logit_scale", 0.0),)
        config.optimizer.weight_decay = 0.0
        hard_images.use(config, relation=0.5, attribute=0.5)
    return config

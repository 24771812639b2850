"""What the finetuning configs of the scenes share: where they start, how long they take, on what.

Each starts from a CLIP of the scenes: `--config.init_from=WORKDIR` names one, otherwise the run
trains it first, in WORKDIR/pretrain. Arguments of all of them: steps=N; base=clip, or relations,
which is the model of configs/scenes/negclip.py:hard_images that knows what is left of what; world,
split and pooling as those of configs/scenes/clip.py.
"""

from types import SimpleNamespace
from typing import Any

from ml_collections import ConfigDict

from configs import default
from configs.common import arguments, pretrained
from configs.scenes import clip

# Captions that say more than those of pretraining, so that most of them offer a negative.
CAPTIONS = {"colour": 0.9, "size": 0.35, "relation": 0.5, "single": 0.1}
# What rule-based methods draw: any word of the class, rare synonyms as often as common words.
WORD_LIST = {"draw": "uniform_word_list"}
SYNONYMS = {"sets": "a"}  # of the two synonyms of a word; the other one is never a positive
BASES = ("clip", "relations")
ARGUMENTS = {"steps": 250, "base": "clip", "world": "scenes-mini", "split": "validation"}


def parse(argument: str | None, **defaults: Any) -> SimpleNamespace:
    """The arguments of a config: those above, and its own."""
    args = arguments.parse(argument, **{"pooling": "cls"} | ARGUMENTS | defaults)
    if args.base not in BASES:
        raise ValueError(f"base is one of {', '.join(BASES)}; got {args.base!r}")
    return args


def get_config(args: SimpleNamespace) -> ConfigDict:
    """CLIP-FT: further training with CLIP's own loss."""
    config = clip.get_config(f"world={args.world},split={args.split},pooling={args.pooling}")
    with config.unlocked():
        config.pretrain = pretrain(args.base, f"world={args.world},pooling={args.pooling}")
        config.steps = args.steps
        config.batch_size = 128
        config.optimizer.warmup_steps = 30
        config.input.scenes.caption_options.update(CAPTIONS)
        config.eval.every = args.steps
    return config


def pretrain(base: str, argument: str) -> ConfigDict:
    """The run that comes first where no weights are given."""
    if base == "clip":
        return clip.get_config(argument)
    from configs.scenes import negclip  # which is itself a finetuning config

    return negclip.get_config(f"hard_images,{argument}")


def negclip(args: SimpleNamespace, **generators: float) -> ConfigDict:
    """NegCLIP's loss on the negatives of these generators."""
    config = get_config(args)
    with config.unlocked():
        config.losses = ConfigDict({"negclip": default.loss(weight=1.0, duplicates="mask")})
        use_negatives(config, **generators)
    return config


def use_negatives(config: ConfigDict, count: int = 1, **generators: float) -> None:
    """`count` hard negatives per caption, words drawn as rule-based methods draw them."""
    options = {"scenes_replace": WORD_LIST} if "scenes_replace" in generators else {}
    fallback = "replace" if len(generators) > 1 else "skip"
    pretrained.use_texts(config.input.negatives, count, fallback, generators, **options)


def use_positives(config: ConfigDict, count: int, fallback: str, **generators: float) -> None:
    """`count` hard positives per caption, of these generators."""
    options = {"scenes_synonym": SYNONYMS} if "scenes_synonym" in generators else {}
    pretrained.use_texts(config.input.positives, count, fallback, generators, **options)

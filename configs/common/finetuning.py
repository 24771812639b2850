"""Finetuning on the embedded scenes: model, steps, data, and the run that it starts from.

A run starts from a CLIP of the scenes: `--config.init_from=WORKDIR` names its run; without it the
run trains one first, in WORKDIR/pretrain. Arguments: steps=N; base=clip, or relations, the model of
configs/negclip.py:hard_images, which distinguishes "left of" from "right of"; world, split and
pooling as in configs/scenes/clip.py.
"""

from types import SimpleNamespace

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.configs.common import arguments, pretrained, scenes

# Shares of attributes in captions; higher than in pretraining, so that most have a negative.
CAPTIONS = {"colour": 0.9, "size": 0.35, "relation": 0.5, "single": 0.1}
# World -> draw of replacing words. Rule-based methods draw any word of the class, rare synonyms as
# often as common words. If captions contain synonyms, words are drawn as a language model does:
# common words with another meaning.
DRAWS = {"scenes-synonyms": "base_words"}
WORD_LIST = "uniform_word_list"
SYNONYMS = {"sets": "a"}  # one of the two synonyms of a word; the other is never a positive
# relations are learned all at once, after about 450 steps (configs/scenes/hard_images.py), but in
# some seeds later: of three seeds with mean pooling one had not learned them after 800
RELATION_STEPS = 1600
DATA = {
    "steps": 250,
    "base": arguments.OneOf("clip", "relations"),
    "world": "scenes-mini",
    "split": "validation",
}
ARGUMENTS = DATA | {"pooling": "cls"}


def make(args: SimpleNamespace) -> ConfigDict:
    """CLIP-FT: further training with CLIP's own loss."""
    config = scenes.make(world=args.world, split=args.split, pooling=args.pooling)
    with config.unlocked():
        config.pretrain = pretrain(args.base, args.world, args.pooling)
        config.steps = args.steps
        config.batch_size = 128
        config.optimizer.warmup_steps = 30
        config.input.scenes.caption_options.update(CAPTIONS)
        config.eval.every = args.steps
    return config


def use_siglip(config: ConfigDict, args: SimpleNamespace) -> None:
    """SigLIP's scale and bias, and a SigLIP in place of CLIP to start from."""
    config.pretrain = scenes.siglip(world=args.world)
    config.pretrain.model.image.pooling = args.pooling
    for field in ("logit_scale_max", "logit_scale_init", "logit_bias_init"):
        config.model[field] = config.pretrain.model[field]


def pretrain(base: str, world: str, pooling: str) -> ConfigDict:
    """The pretraining run if config.init_from is not set."""
    if base == "clip":
        return scenes.make(world=world, pooling=pooling)
    return relations(arguments.parse({"world": world, "pooling": pooling}, **ARGUMENTS))


def negclip(args: SimpleNamespace, **generators: float) -> ConfigDict:
    """NegCLIP's loss on the negatives of these generators."""
    config = make(args)
    with config.unlocked():
        config.losses = ConfigDict({"negclip": default.loss(weight=1.0, duplicates="mask")})
        use_negatives(config, **generators)
    return config


def swapped_captions(args: SimpleNamespace) -> ConfigDict:
    """NegCLIP: two words or two objects of the caption exchanged."""
    return negclip(args, scenes_swap=0.5, scenes_reverse=0.5)


def relations(args: SimpleNamespace) -> ConfigDict:
    """NegCLIP with hard images, after a run on pairs that differ only in a relation."""
    config = swapped_captions(args)
    with config.unlocked():
        use_hard_images(config, relation=0.7, attribute=0.3)
        first = {"steps": RELATION_STEPS, "world": args.world, "pooling": args.pooling}
        config.pretrain = relation_pairs(arguments.parse(first, **ARGUMENTS))
        config.steps = max(args.steps, 400)
    return config


def relation_pairs(args: SimpleNamespace) -> ConfigDict:
    """CLIP's loss on pairs of scenes that differ in one relation."""
    config = make(args)
    with config.unlocked():
        use_hard_images(config, relation=1.0)
        config.input.scenes.world_options.counts = (0.0, 1.0, 0.0)  # two objects, no third one
    return config


def use_hard_images(config: ConfigDict, **kinds: float) -> None:
    """Every second row is the hard image of the row before; one caption per image, which states the
    difference.
    """
    config.input.hard_images = 1
    config.input.scenes.hard_images = tuple(kinds.items())
    config.input.scenes.captions = 1
    config.input.scenes.count = 256_000


def use_triplets(config: ConfigDict, **kinds: float) -> None:
    """Hard images, whose captions are the hard negatives of their records' captions, and the other
    way round."""
    use_hard_images(config, **kinds)
    pretrained.use_texts(config.input.negatives, 1, "skip", {"from_record": 1.0})


def use_negatives(config: ConfigDict, count: int = 1, **generators: float) -> None:
    """`count` hard negatives per caption of these generators; replacing words follow DRAWS."""
    draw = {"draw": DRAWS.get(config.input.scenes.world, WORD_LIST)}
    options = {"scenes_replace": draw} if "scenes_replace" in generators else {}
    fallback = "replace" if len(generators) > 1 else "skip"
    pretrained.use_texts(config.input.negatives, count, fallback, generators, **options)


def use_positives(config: ConfigDict, count: int, fallback: str, **generators: float) -> None:
    """`count` hard positives per caption, of these generators."""
    rewordings = ("scenes_synonym", "scenes_paraphrase")
    options = {name: SYNONYMS for name in rewordings if name in generators}
    pretrained.use_texts(config.input.positives, count, fallback, generators, **options)

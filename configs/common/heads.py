"""PACL, SPARC, DCSM and LABCLIP: their arguments, heads, losses and data, on the scenes and on
captions.

Arguments of all four: image_tower=locked|unlocked and text_tower=locked|unlocked (a locked tower
is frozen). Of PACL and SPARC: rope=none, feature_1d or feature_2d (on the patches, behind the
tower), qk_1d or qk_2d (inside it, which must then be unlocked); temperature=fixed|learned (.1 at
the start); negatives=none|leftright. Of PACL: pooling=pairwise|own_caption|uniform, in training;
eval_pooling=sigmoid|uniform; text_encoder=clip, or a file of vectors of all texts, with
connector=none|linear|mlp2x_gelu|llm2clip (vlc_jax/models/text_vectors.py).

On the scenes the towers are a CLIP with mean pooling, which trains its patch tokens:
`--config.init_from=WORKDIR` names its run; without it the run trains one first, in
WORKDIR/pretrain. Arguments there: steps=N; base=clip, or relations (NegCLIP with hard images from
such a CLIP, which distinguishes "left of" from "right of"); tower_pooling=mean|cls; world and split
as in configs/scenes/clip.py. Every second row of a batch is the hard image of the row before: two
objects or two colours exchanged, or one object replaced by the object that its caption denies (PACL
and SPARC: hard_images=0 leaves them out); pairs=N of them. phrases=plain (captions name the colour
of each object, no sizes, no "a photo of"), or varied, as other configs have them.
"""

from types import SimpleNamespace
from typing import Any

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from vlc_jax.configs import default
from vlc_jax.configs.common import finetuning, pretrained
from vlc_jax.configs.common.arguments import OneOf

LOCK = OneOf("locked", "unlocked")
TOWERS = {"image_tower": LOCK, "text_tower": LOCK}
SELECT = OneOf("patch", "cls", "cls_patch", "pooled")
PATCHES = TOWERS | {
    "rope": OneOf("none", "feature_1d", "feature_2d", "qk_1d", "qk_2d"),
    "temperature": OneOf("fixed", "learned"),
    "negatives": OneOf("none", "leftright"),
}
SCENES = finetuning.DATA | {
    "tower_pooling": "mean",
    "pairs": 256_000,
    "phrases": OneOf("varied", "plain"),
}
PLAIN_SCENES = SCENES | {"phrases": OneOf("plain", "varied")}
TEMPERATURE = 0.1  # of PACL and SPARC in the ACL 2025 code
TEMPERATURE_OF_VLM2VEC = 0.02  # there, too
PAIRS = 8  # of a block of DCSM, without their opposites
PLAIN = {"prefixes": ("",), "colour": 1.0, "size": 0.0}  # caption_options of phrases=plain
# Functional words of DCSM, its authors' eleven.
WORDS = ("above", "below", "left", "right", "small", "big", "not", "no", "without", "but", "absent")


def use(
    config: ConfigDict, name: str, temperature: float, frozen: tuple[str, ...], **head: Any
) -> None:
    """Chooses a head and its fields, and freezes towers; logits are scores / temperature, which is
    frozen, too."""
    config.model.name = name
    config.model.logit_scale_init = 1 / temperature
    config.frozen = (*frozen, "logit_scale")
    config.model.head = ConfigDict(head)


def use_pooled(config: ConfigDict, rule: str) -> None:
    """Scores of pooled patches for a loss, beside the model's dot product of pooled features."""
    config.model.name = "pooled"
    head = {"rule": rule, "scoring": "global"}
    has_start = config.text.tokenizer in ("clip", "hf")
    config.model.head = ConfigDict(head | {"has_start_token": has_start})


def use_dora(config: ConfigDict, dropout: float = 0.0) -> None:
    """Adapters of VLM2Vec in the ACL 2025 code (where dropout is .1), on a decoder whose other
    parameters are frozen."""
    config.frozen = ()
    config.lora.update(
        {
            "targets": "head/lm/blocks/(query|key|value|out|down)/kernel",
            "rank": 8,
            "alpha": 64.0,
            "dropout": dropout,
            "dora": True,
            "initialisation": "gaussian",
        }
    )


def towers(args: SimpleNamespace) -> tuple[str, ...]:
    """The towers that the arguments lock."""
    locks = {"image": args.image_tower, "text": args.text_tower}
    return tuple(name for name, lock in locks.items() if lock == "locked")


def use_vectors(config: ConfigDict, path: str, connector: str) -> None:
    """Precomputed text vectors in place of the text tower."""
    config.text.tokenizer, config.text.tokenizer_options = "vectors", ConfigDict({"path": path})
    config.model.text.connector = connector
    config.frozen = tuple(part for part in config.frozen if part != "text")
    if config.input.source == "scenes":
        config.input.scenes.count = 32_000  # each text needs a vector


def use_patches(
    config: ConfigDict, args: SimpleNamespace, name: str, weight: float, **head: Any
) -> None:
    """PACL's or SPARC's head, and its contrastive loss with this weight."""
    is_inside = args.rope.startswith("qk")
    if is_inside and args.image_tower == "locked":
        raise ValueError(
            f"rope={args.rope} turns queries and keys inside the image tower, which was not made "
            "for it: train it with image_tower=unlocked"
        )
    use(config, name, TEMPERATURE, towers(args), **head)
    if args.temperature == "learned":
        config.frozen = towers(args)
    if args.rope != "none":
        part = config.model.image if is_inside else config.model.head
        part.rope = args.rope
    loss = "infonce" if args.negatives == "none" else "negclip"
    config.losses = ConfigDict({loss: default.loss(weight=weight)})
    if args.negatives == "leftright":
        pretrained.use_left_right(config.input.negatives)


def labclip(config: ConfigDict, args: SimpleNamespace) -> None:
    """LABCLIP's head and NegCLIP's loss; the authors' temperature is learned, from 1."""
    use(config, "labclip", 1.0, ())
    config.frozen = towers(args)
    has_negatives = bool(config.input.negatives.count)
    config.losses = ConfigDict(
        {"negclip" if has_negatives else "infonce": default.loss(weight=1.0)}
    )


def dcsm(config: ConfigDict, args: SimpleNamespace, **head: Any) -> None:
    """DCSM's head and loss, on blocks of 8 pairs and their opposites (images with captions, or
    captions alone); mode=authors repeats the slips of its authors' code."""
    is_authors = args.mode == "authors"
    words = WORDS if args.functional == "rows" else ()
    config.text.functional_words.words = words
    config.text.functional_words.position = "word" if is_authors else "token"
    mode = {"standardise": "tensor" if is_authors else "running"}
    mode |= {"dropout": 0.1} if is_authors else {}
    use(config, "dcsm", 1.0, towers(args), num_functional_words=len(words), **mode | head)
    if words:  # random vectors, which the authors do not train
        config.frozen = (*config.frozen, "head/functional_words")
    has_image = args.opposite == "image"
    config.sub_batches = args.blocks
    config.batch_size = PAIRS * (1 + has_image) * args.blocks
    # Theirs: rows + columns, summed over six blocks, gradient divided by the three data sets; ours:
    # the mean of rows and columns, and over blocks. Six times two thirds.
    loss = "infonce" if has_image else "negclip"
    config.losses = ConfigDict({loss: default.loss(weight=4.0)})


def adam(config: ConfigDict, rate: float, epochs: float) -> None:
    """torch's Adam at a constant rate, as the authors of all three train; nothing is clipped."""
    config.steps, config.epochs = placeholder(int), epochs
    config.optimizer.update(
        {
            "learning_rate": rate,
            "schedule": "constant",
            "warmup_steps": 0,
            "weight_decay": 0.0,
            "b1": 0.9,
            "b2": 0.999,
            "eps": 1e-8,
            "clip_norm": None,
        }
    )
    config.model.logit_scale_max = None
    config.checkpoint.every = 500


def on_scenes(
    args: SimpleNamespace, hard_images: bool = True, negatives: str = "none"
) -> ConfigDict:
    """Towers and data, before a head is chosen."""
    if negatives == "leftright" and hard_images:
        raise ValueError(
            "negatives=leftright: captions of exchanged pictures never say 'on the left', so that "
            "none has a negative; say hard_images=0"
        )
    config = finetuning.make(SimpleNamespace(**vars(args) | {"pooling": args.tower_pooling}))
    with config.unlocked():
        config.optimizer.weight_decay = 0.0
        if hard_images:
            finetuning.use_hard_images(config, relation=0.4, attribute=0.3, negation=0.3)
            config.input.scenes.count = args.pairs
        if args.phrases == "plain":
            config.input.scenes.caption_options.update(PLAIN)
        if negatives == "leftright":
            config.input.scenes.caption_options.place = 0.5  # of captions that may say where
    return config


# PACL and SPARC on captions: COCO's with a smaller tower, LLaVA's conversations with the authors'
# tower.
COCO = {
    **pretrained.FINETUNING,
    "sets": pretrained.WHATSUP,
    "batch": 1024,
    "variant": "B/16",
    "size": 400,
    "noun_phrases": 0.5,
    "tagger": "spacy:en_core_web_sm",
    "image_norm": OneOf("imagenet", "clip"),
}
LLAVA = COCO | {"batch": 4096, "variant": "L/14-336", "size": 336, "answers": "each"}


def on_captions(args: SimpleNamespace) -> ConfigDict:
    """Towers and data of the ACL 2025 code, before a head is chosen; with args.data "llava" a .json
    file has conversations, with "coco" COCO's captions."""
    config = default.get_config()
    with config.unlocked():
        pretrained.use_clip(config, args, args.size)
        pretrained.evaluate(config, args)
        config.batch_size = args.batch
        if args.data == "coco":
            config.model.activation = "gelu"  # LAION-2B's ViT-B/16
        elif args.path.endswith(".json"):
            pretrained.read_llava(config, args, answers=args.answers)
        if args.noun_phrases:
            config.input.noun_phrases.update(share=args.noun_phrases, tagger=args.tagger)
        config.input.crop = "none"  # squashed
        config.input.interpolation = "bilinear"
        config.input.normalisation = args.image_norm
        config.input.jitter.update(brightness=0.2, hue=0.1)
        adam(config, rate=1e-4, epochs=10.0)
    return config

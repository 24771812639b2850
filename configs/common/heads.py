"""PACL, SPARC, DCSM and LABCLIP: their arguments, heads, losses and data, on the scenes and on
captions.

Arguments of all of them: image_tower=locked|unlocked and text_tower=locked|unlocked (a locked tower
is frozen). Of PACL and SPARC: rope=none, feature_1d or feature_2d (on the patches, behind the
tower), qk_1d or qk_2d (inside it, which must then be unlocked); temperature=fixed|learned (.1 at
the start); negatives=none|leftright. Of PACL alone: pooling=pairwise|own_caption|uniform, in
training; eval_pooling=sigmoid|uniform; text_encoder=clip, or a file of vectors of all texts, with
connector=none|linear|mlp2x_gelu|llm2clip (vlc_jax/models/text_vectors.py).

On the scenes the towers are those of a CLIP with mean pooling, which trains its patch tokens:
`--config.init_from=WORKDIR` names one, otherwise the run trains it first, in WORKDIR/pretrain.
Arguments there: steps=N; base=clip, or relations (NegCLIP with hard images from such a CLIP, which
knows what is left of what); tower_pooling=mean|cls; world and split as those of
configs/scenes/clip.py. Every second row of a batch is the picture before with two objects or two
colours exchanged, or one object replaced by the one that its caption denies (of PACL and SPARC:
hard_images=0 leaves these out); pairs=N of them. phrases=plain, or varied: captions are plain (they
say the colour of each object, and no sizes nor "a photo of"), or as those of other configs.
"""

from types import SimpleNamespace
from typing import Any

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.configs.common import arguments, finetuning, pretrained

ROPES = ("none", "feature_1d", "feature_2d", "qk_1d", "qk_2d")
LOCKS = ("locked", "unlocked")
CHOICES = {  # of arguments
    "base": finetuning.BASES,
    "image_tower": LOCKS,
    "text_tower": LOCKS,
    "rope": ROPES,
    "temperature": ("fixed", "learned"),
    "negatives": ("none", "leftright"),
    "pooling": ("pairwise", "own_caption", "uniform"),
    "eval_pooling": ("sigmoid", "uniform"),
    "text_tokens": ("real", "all"),
    "scoring": ("local", "global"),
    "image_norm": ("imagenet", "clip"),
    "mode": ("clean", "authors"),
    "captions": ("given", "negclip"),
    "opposite": ("image", "text"),
    "phrases": ("plain", "varied"),
    "functional": ("rows", "none"),
    "select": ("patch", "cls", "cls_patch", "pooled"),
    "train": ("full", "dora"),
    "question": (0, 1),
    "stage": (1, 2),
}
TOWERS = {"image_tower": "locked", "text_tower": "locked"}
PATCHES = TOWERS | {"rope": "none", "temperature": "fixed", "negatives": "none"}
PACL = PATCHES | {
    "pooling": "pairwise",
    "eval_pooling": "sigmoid",
    "text_encoder": "clip",
    "connector": "none",
}
TEMPERATURE = 0.1  # of PACL and SPARC in the ACL 2025 code
TEMPERATURE_OF_VLM2VEC = 0.02  # there, too
PAIRS = 8  # of a block of DCSM, without their opposites
PLAIN = {"prefixes": ("",), "colour": 1.0, "size": 0.0}  # caption_options of phrases=plain
# Functional words of DCSM, its authors' eleven.
WORDS = ("above", "below", "left", "right", "small", "big", "not", "no", "without", "but", "absent")


def check(args: SimpleNamespace) -> SimpleNamespace:
    """Returns the arguments. Raises ValueError for a value that is not among its choices."""
    for name, known in CHOICES.items():
        if hasattr(args, name) and getattr(args, name) not in known:
            raise ValueError(
                f"{name} is one of {', '.join(map(str, known))}; got {getattr(args, name)!r}"
            )
    if getattr(args, "rope", "").startswith("qk") and args.image_tower == "locked":
        raise ValueError(
            f"rope={args.rope} turns queries and keys inside the image tower, which was not made "
            "for it: train it with image_tower=unlocked"
        )
    if getattr(args, "text_encoder", "clip") != "clip" and getattr(args, "noun_phrases", 0):
        raise ValueError(
            "text_encoder: noun phrases are put into templates at each reading, so no file has "
            "their vectors: say noun_phrases=0"
        )
    return args


def use(
    config: ConfigDict, args: SimpleNamespace, name: str, temperature: float, **head: Any
) -> None:
    """Chooses a head and its fields, and freezes towers; logits are scores / temperature."""
    config.model.name = name
    config.model.logit_scale_init = 1 / temperature
    is_learned = getattr(args, "temperature", "fixed") == "learned"
    config.frozen = towers(args) if is_learned else (*towers(args), "logit_scale")
    rope = getattr(args, "rope", "none")
    if rope.startswith("qk"):
        config.model.image.rope = rope
    elif rope != "none":
        head["rope"] = rope
    config.model.head = ConfigDict(head)


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
    # a model without a text tower has no such argument
    locks = {side: getattr(args, f"{side}_tower", "") for side in ("image", "text")}
    return tuple(name for name, lock in locks.items() if lock == "locked")


def use_vectors(config: ConfigDict, path: str, connector: str) -> None:
    """Precomputed text vectors in place of the text tower."""
    config.text.tokenizer, config.text.vectors.path = "vectors", path
    config.model.text.connector = connector
    config.frozen = tuple(part for part in config.frozen if part != "text")
    if config.input.source == "scenes":
        config.input.scenes.count = 32_000  # each text needs a vector


def pacl(config: ConfigDict, args: SimpleNamespace) -> None:
    """PACL's head and loss."""
    head = {"pooling": args.pooling, "eval_pooling": args.eval_pooling}
    use(config, args, "pacl", TEMPERATURE, **head)
    _contrast(config, args, weight=1.0)
    if args.text_encoder != "clip":
        use_vectors(config, args.text_encoder, args.connector)


def sparc(config: ConfigDict, args: SimpleNamespace) -> None:
    """SPARC's head and its global and local loss."""
    is_real = args.text_tokens == "real"
    use(config, args, "sparc", TEMPERATURE, scoring=args.scoring, mask_global_text=is_real)
    _contrast(config, args, weight=0.5)
    config.losses.sparc_local = ConfigDict(default.loss(weight=1.0))


def labclip(config: ConfigDict, args: SimpleNamespace) -> None:
    """LABCLIP's head and NegCLIP's loss; the authors' temperature is learned, from 1."""
    use(config, args, "labclip", 1.0)
    config.frozen = towers(args)
    has_negatives = bool(config.input.negatives.count)
    config.losses = ConfigDict(
        {"negclip" if has_negatives else "infonce": default.loss(weight=1.0)}
    )


def _contrast(config: ConfigDict, args: SimpleNamespace, weight: float) -> None:
    loss = "infonce" if args.negatives == "none" else "negclip"
    config.losses = ConfigDict({loss: default.loss(weight=weight)})
    if args.negatives == "leftright":
        pretrained.use_left_right(config.input.negatives)


def dcsm(config: ConfigDict, args: SimpleNamespace, **head: Any) -> None:
    """DCSM on blocks of 8 pairs and their opposites, pictures with captions or captions
    alone; what its authors' code does (mode=authors), or not.
    """
    is_authors = args.mode == "authors"
    words = WORDS if args.functional == "rows" else ()
    config.text.functional_words.words = words
    config.text.functional_words.position = "word" if is_authors else "token"
    mode = {"standardise": "tensor" if is_authors else "running"}
    mode |= {"dropout": 0.1} if is_authors else {}
    use(config, args, "dcsm", 1.0, num_functional_words=len(words), **mode | head)
    if words:  # random vectors, which the authors do not train
        config.frozen = (*config.frozen, "head/functional_words")
    has_image = args.opposite == "image"
    config.sub_batches = args.blocks
    config.batch_size = PAIRS * (1 + has_image) * args.blocks
    # rows + columns, where the loss is their mean
    loss = "infonce" if has_image else "negclip"
    config.losses = ConfigDict({loss: default.loss(weight=2.0)})


def adam(config: ConfigDict, rate: float, epochs: float) -> None:
    """torch's Adam at a constant rate, as the authors of all three train; nothing is clipped."""
    config.steps, config.epochs = None, epochs
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
    config.checkpoint.every = config.eval.every = 500


def parse_scenes(argument: str | None, **defaults: Any) -> SimpleNamespace:
    """The arguments of a config on the scenes: those above, and its own."""
    common = finetuning.ARGUMENTS | {"tower_pooling": "mean", "pairs": 256_000, "phrases": "varied"}
    args = check(arguments.parse(argument, **common | defaults))
    if getattr(args, "negatives", "none") == "leftright" and args.hard_images:
        raise ValueError(
            "negatives=leftright: captions of exchanged pictures never say 'on the left', so that "
            "none has a negative; say hard_images=0"
        )
    return args


def on_scenes(args: SimpleNamespace) -> ConfigDict:
    """Towers and data, before a head is chosen."""
    config = finetuning.make(SimpleNamespace(**vars(args) | {"pooling": args.tower_pooling}))
    with config.unlocked():
        config.optimizer.weight_decay = 0.0
        if getattr(args, "hard_images", True) and getattr(args, "opposite", "image") == "image":
            finetuning.use_hard_images(config, relation=0.4, attribute=0.3, negation=0.3)
            config.input.scenes.count = args.pairs
        if args.phrases == "plain":
            config.input.scenes.caption_options.update(PLAIN)
        if getattr(args, "negatives", "none") == "leftright":
            config.input.scenes.caption_options.place = 0.5  # of captions that may say where
    return config


# Of configs of PACL and SPARC on captions: those of configs/coco/clip_ft.py, and these.
CAPTIONS = {
    **pretrained.ARGUMENTS,
    "validation": "",
    "batch": 4096,
    "variant": "L/14-336",
    "size": 336,
    "answers": "each",
    "noun_phrases": 0.5,
    "tagger": "spacy:en_core_web_sm",
    "image_norm": "imagenet",
}


def on_captions(args: SimpleNamespace, table: str = "llava") -> ConfigDict:
    """Towers and data of the ACL 2025 code, before a head is chosen; table: what .json is."""
    config = default.get_config()
    with config.unlocked():
        pretrained.use_clip(config, args, args.size)
        pretrained.validate(config, args)
        config.batch_size = args.batch
        if args.path.endswith(".json") and table == "llava":
            pretrained.read(config, pretrained.source_of(args.path, args.image_folder, table))
            config.input.llava.answers = args.answers
        if args.noun_phrases:
            config.input.noun_phrases.update(share=args.noun_phrases, tagger=args.tagger)
        config.input.crop = "none"  # squashed
        config.input.interpolation = "bilinear"
        config.input.normalisation = args.image_norm
        config.input.jitter.update(brightness=0.2, hue=0.1)
        adam(config, rate=1e-4, epochs=10.0)
    return config

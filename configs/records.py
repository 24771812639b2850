"""A new CLIP of 0.6 M parameters at 64 pixels, trained from nothing on a table of your own images.
To finetune a published CLIP: configs/finetune.py.

  python -m vlc_jax.main --config configs/records.py:path=DATA/captions.jsonl --workdir runs/mine

  python -m vlc_jax.main --workdir runs/mine_hp_hn \\
    --config configs/records.py:path=DATA/captions.jsonl,method=hp_hn,init_from=runs/mine

Arguments: path (.jsonl, .tsv, .csv, .parquet, COCO captions .json, a folder of Parquet files, or
one that vlc-jax prepare wrote); image_folder (default: the folder of the table); holdout (share of
the images kept for validation, default 0.2; 0: all are trained on, none evaluated); epochs (default
30) or steps; batch (pairs per step, default 64, or fewer where the table, if it is no Parquet, has
fewer images); size (pixels); variant
(vlc_jax/models/variants.py); method=clip|negclip|crepe_swap|crepe_replace|crepe_negate|hn|hp_hn|
hp_hn_swap_only|hp_hn_replace_only|svlc|leftright|fsc_clip|ce_clip|degla (losses and hard texts of
the method, generators in their clean mode) or dcsm|pacl|sparc|labclip (also head and optimizer, on
the frozen towers of init_from); tagger=spacy:NAME (default spacy:en_core_web_sm: negclip, fsc_clip,
dcsm and labclip need it, the other methods use it where it is installed); init_from (a run to start
from: its model, tokenizer and preprocessing are taken, not size and variant, and a tenth of the
learning rate). Other columns, tokenizers and crops:
--config.input.source_options.caption_column=title and so on (`vlc-jax --list` and
configs/default.py have all options and fields).
"""

import importlib.util
import itertools
import json
import os
from types import SimpleNamespace

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from vlc_jax.configs import (
    ce_clip,
    crepe,
    dcsm,
    default,
    degla,
    fsc_clip,
    hn,
    hp_hn,
    labclip,
    leftright,
    negclip,
    pacl,
    sparc,
    svlc,
)
from vlc_jax.configs.common import arguments, heads, pretrained
from vlc_jax.errors import known

METHODS = {  # method -> its config, and the arguments that make its hard texts of any caption
    "negclip": (negclip, {"hard_images": 0, "negatives": "negclip"}),
    "crepe_swap": (crepe, {"kind": "swap"}),
    "crepe_replace": (crepe, {"kind": "replace"}),
    "crepe_negate": (crepe, {"kind": "negate"}),
    "hn": (hn, {}),
    "hp_hn": (hp_hn, {}),
    "hp_hn_swap_only": (hp_hn, {"kind": "swap"}),
    "hp_hn_replace_only": (hp_hn, {"kind": "replace"}),
    "svlc": (svlc, {"negatives": "rule"}),
    "leftright": (leftright, {}),
    "fsc_clip": (fsc_clip, {}),
    "ce_clip": (ce_clip, {}),
    "degla": (degla, {}),
}
HEADS = {
    "dcsm": (dcsm, {"mode": "clean", "opposite": "text", "captions": "negclip"}),
    "pacl": (pacl, {"noun_phrases": 0.0}),
    "sparc": (sparc, {"noun_phrases": 0.0}),
    "labclip": (labclip, {}),
}
TAGGED = ("negclip", "fsc_clip", "dcsm", "labclip")
PIPELINE = "en_core_web_sm"
# generators that make fewer wrong texts with a tagger
BETTER_TAGGED = ("crepe_swap", "crepe_replace", "crepe_negate", "swap")
EPOCHS, BATCH = 30, 64
# Images that are counted: with more of them, no default depends on their number.
ENOUGH = 4096


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(
        argument,
        path="",
        image_folder="",
        holdout=0.2,
        steps=0,
        epochs=0,
        batch=0,
        size=64,
        variant="mini/8",  # other projects have its form, so that --to hf can export it
        method="clip",
        tagger="",
        init_from="",
    )
    config = default.get_config()
    check(args)
    images = int(count_images(args.path) * (1 - args.holdout))
    batch = args.batch or fitting_batch(images)
    with config.unlocked():
        config.batch_size = batch
        config.steps = args.steps or placeholder(int)
        if args.epochs or not args.steps:
            config.epochs = args.epochs or EPOCHS
        steps = args.steps or int(config.epochs * images / batch)
        config.optimizer.warmup_steps = min(100, steps // 10)
        source = pretrained.source_of(args.path, args.image_folder)
        # prepared shards have no split, and training data must not be evaluated on
        is_split = source["source"] == "records"
        pretrained.read(config, source, **({"holdout": args.holdout} if is_split else {}))
        config.input.image_size = args.size
        config.input.crop = "random_resized"
        config.text.tokenizer = "bytes"
        config.text.context_length = 77
        config.model.variant = args.variant
        config.model.vocab_size = 260
        is_evaluated = is_split and args.holdout
        config.evals = ConfigDict({"retrieval": {"split": "validation"}} if is_evaluated else {})
        if args.init_from:
            pretrained.start_from(config, args.init_from)
        if args.method != "clip":
            use_method(config, args.method, args.tagger)
    return config


def check(args: SimpleNamespace) -> None:
    """Raises ValueError for a number out of range."""
    for name in ("steps", "epochs", "batch"):
        if (value := getattr(args, name)) < 0:
            raise ValueError(
                f"{name} is a whole number from 1 on, or 0 for the default; got {value}"
            )
    if args.variant.startswith("ViT-"):
        raise ValueError(
            f"variant={args.variant} is a name of open_clip: --config finetune:weights="
            f"{args.variant}@TAG,data=TABLE starts from its weights; variants: vlc-jax --list"
        )
    if args.size < 1:
        raise ValueError(f"size is a number of pixels from 1 on; got {args.size}")
    if not 0 <= args.holdout < 1:
        raise ValueError(f"holdout is a share in [0, 1), 0 for no validation; got {args.holdout}")


def count_images(path: str) -> int:
    """Different images of the first rows of a table, at most ENOUGH; ENOUGH for what is no text.

    An estimate for defaults: rows of one image stand for one record.
    """
    if not path.lower().endswith((".csv", ".tsv", ".json", ".jsonl")):
        return ENOUGH
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            if os.path.splitext(path)[1] == ".json":  # COCO's form: one object
                images = json.load(file)["images"] if os.path.getsize(path) < 10_000_000 else ()
                return min(len(images), ENOUGH) or ENOUGH
            if path.endswith((".csv", ".tsv")):
                next(file, None)  # the header
            names = {image_of(line) for line in itertools.islice(file, ENOUGH) if line.strip()}
    except (OSError, ValueError, KeyError, TypeError):  # the source names what is wrong
        return ENOUGH
    return min(len(names), ENOUGH) or ENOUGH


def image_of(line: str) -> str:
    """The image of a row: the field "image" of a JSON object, else the first cell."""
    try:
        return str(json.loads(line)["image"])
    except (ValueError, KeyError, TypeError):
        return line.partition("\t" if "\t" in line else ",")[0]


def fitting_batch(images: int) -> int:
    """The largest power of two up to BATCH that is no larger than the number of images."""
    return min(BATCH, 1 << max(images, 1).bit_length() - 1)


def use_method(config: ConfigDict, method: str, tagger: str) -> None:
    """Losses and hard texts of a method, and the head if it has one."""
    methods = METHODS | HEADS
    known("method", method, ("clip", *methods), ValueError)
    recipe, options = methods[method]
    options = {"data": "coco", **options}
    if method in TAGGED:
        options["tagger"] = tagger or f"spacy:{PIPELINE}"
    elif not tagger and all(map(importlib.util.find_spec, ("spacy", PIPELINE))):
        tagger = f"spacy:{PIPELINE}"
    if method == "dcsm":
        options["blocks"] = max(1, config.batch_size // heads.PAIRS)
    theirs = recipe.get_config(options)
    config.losses = theirs.losses
    if theirs.model.name == "pooled":
        heads.use_pooled(config, theirs.model.head.rule)
    if method in HEADS:
        use_head(config, theirs, method)
    for side in ("negatives", "positives"):
        texts = theirs.input[side].copy_and_resolve_references()
        with texts.unlocked():
            for options in texts.options.values():
                if "mode" in options:  # the authors' slips only serve their numbers
                    del options["mode"]
            for name in texts.generators if tagger else ():
                if name in BETTER_TAGGED:
                    texts.options[name] = {**texts.options.get(name, {}), "tagger": tagger}
        config.input[side] = texts


def use_head(config: ConfigDict, theirs: ConfigDict, method: str) -> None:
    """The head of the config `theirs`, on the frozen towers of config.init_from."""
    if not config.init_from:
        raise ValueError(f"method={method} trains a head on the towers of a run: init_from=RUN")
    config.frozen, config.optimizer = theirs.frozen, theirs.optimizer
    for field in ("name", "head", "logit_scale_init", "logit_scale_max"):
        config.model[field] = theirs.model[field]
    config.text.functional_words = theirs.text.functional_words
    config.sub_batches = theirs.sub_batches

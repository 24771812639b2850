"""Published CLIP, or a run, finetuned on your own table of images and captions.

  vlc-jax --config finetune:weights=ViT-B-32@openai,data=my.csv --workdir runs/mine
  vlc-jax --config finetune:weights=runs/clip,data=my.csv,method=negclip,lora=8 --workdir runs/lora
  vlc-jax --workdir runs/hp_hn --config \\
    finetune:weights=hf://openai/clip-vit-base-patch32,data=my.csv,method=hp_hn,frozen=image

Evaluates retrieval on images that are kept from training, and SugarCrepe where root has its files,
before the first step, after every epoch (of 4,096 images or more, every 500 steps) and at the end.

Arguments: weights (MODEL@TAG of open_clip, hf://OWNER/NAME, a file or folder of OpenAI, open_clip,
Hugging Face or big_vision, an exported folder, or the workdir of a run); tokenizer (its file or
folder, where the weights' folder has none); data (the table: .csv, .tsv, .jsonl, .parquet, COCO
captions .json, or a folder that vlc-jax prepare wrote); images (folder in which image names start;
default: that of the table); image_column, caption_column, negatives_column, positives_column
(default: the first of the usual names that the table has; "none": no such column);
method=clip_ft|negclip|hn|hp_hn|fsc_clip|... (as in configs/records.py; hard texts come from the
table's columns if it has them, else from the method's rules); tagger (likewise);
frozen=image|text|all_but_last_N (blocks of each tower); lora (rank of adapters of queries and
values, which alone are trained; 0: none; with frozen, of the other tower alone); holdout (share of
the images kept for validation); epochs or steps; batch; learning_rate (default: 1e-5 below 4,096
images, else 5e-6; of LoRA 1e-4); root (folder of published sets, default: sets); sets (of it,
joined by +; default: sugarcrepe if it is there).
"""

import csv
import itertools
import json
import os
import sys

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder
from pyarrow import parquet

from vlc_jax.configs import default, records
from vlc_jax.configs.common import arguments, pretrained
from vlc_jax.input_pipeline import record

BATCH = 256  # NegCLIP's
LARGE_EVERY = 500  # steps between evaluations of a table whose images are not all counted
# what LoRA adapts, by `frozen`
ADAPTED = {
    frozen: f"{tower}.*/(query|value)/kernel"
    for frozen, tower in (("", ""), ("image", "text/"), ("text", "image/"))
}
SUGARCREPE = ("sugar_crepe", os.path.join("coco", "val2017"))  # in root


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    columns = {f"{name}_column": "" for name in record.COLUMNS}
    args = arguments.parse(
        argument, weights="", tokenizer="", data="", images="", method="clip_ft", tagger="",
        frozen="", lora=0, holdout=0.1, epochs=5, steps=0, batch=0, learning_rate=0.0, root="sets",
        sets="", **columns,
    )  # fmt: skip
    check(args)
    if argument and not (args.weights and args.data):
        raise ValueError("finetune needs weights=NAME_OR_PATH and data=TABLE")
    config = default.get_config()
    count = records.count_images(args.data)
    with config.unlocked():
        config.init_from = address(args.weights) or None
        config.input.crop = "random_resized"
        if args.tokenizer:
            config.text.tokenizer_options.path = args.tokenizer
        set_duration(config, args, count)
        source = pretrained.source_of(args.data, args.images)
        is_table = source["source"] == "records"
        split = {"holdout": args.holdout} if is_table else {}
        given = {name: getattr(args, f"{name}_column") for name in record.COLUMNS}
        names, needed = column_names(args.data), ("image", "caption")
        usual = record.COLUMNS if is_table else {}
        columns = record.find_columns(args.data, names, given, usual, needed)
        pretrained.read(config, source, **split, **{f"{k}_column": v for k, v in columns.items()})
        if is_table and args.holdout:
            config.evals.retrieval = {"split": "validation"}
        use_sets(config, args)
        if is_siglip(args.weights):
            if args.method != "clip_ft":
                raise ValueError(
                    f"method={args.method} has CLIP's loss, and the weights are SigLIP's"
                )
            config.losses = ConfigDict({"sigmoid": default.loss(weight=1.0)})
            config.model.logit_scale_max = None  # published scales are about 117
        elif args.method != "clip_ft":
            records.use_method(config, args.method, args.tagger)
        use_own_texts(config, args.method, columns)
        if args.lora:
            config.lora.update(
                {"targets": ADAPTED[args.frozen], "rank": args.lora, "alpha": float(args.lora)}
            )
        elif args.frozen:
            config.frozen = (args.frozen,)
        head = config.model.name
        config.model.name = "init_from" if head == "clip" else f"init_from:{head}"
    if 0 < count * args.holdout < 2:
        raise ValueError(
            f"holdout={args.holdout} of {count} images keeps too few for retrieval: "
            f"holdout={min(0.5, 4 / max(count, 1)):.2g} or more, or holdout=0 for no validation"
        )
    return config


def check(args: arguments.SimpleNamespace) -> None:
    """Raises ValueError for a number out of range, and for what LoRA cannot freeze."""
    numbers = (args.holdout, args.lora, args.batch, args.learning_rate, args.steps)
    if not args.holdout < 1 or min(numbers) < 0:
        raise ValueError(
            "holdout is a share in [0, 1); lora, batch, learning_rate and steps are 0 or more"
        )
    if args.lora and args.frozen not in ADAPTED:
        raise ValueError(f"with lora, frozen is image or text; got {args.frozen!r}")
    if args.epochs < 1:
        raise ValueError(f"epochs is a whole number from 1 on; got {args.epochs}")


def set_duration(config: ConfigDict, args: arguments.SimpleNamespace, count: int) -> None:
    """Batch, steps and learning rate that suit a table of `count` images."""
    is_small, images = count < records.ENOUGH, int(count * (1 - args.holdout))
    config.steps = args.steps or placeholder(int)
    config.epochs = placeholder(float) if args.steps else float(args.epochs)
    config.batch_size = args.batch or min(BATCH, 1 << max(images, 1).bit_length() - 1)
    steps = max(1, images // config.batch_size)  # of an epoch, if all images were counted
    config.eval.every = config.checkpoint.every = steps if is_small else LARGE_EVERY
    # at least; the images of a large table are not all counted
    total = args.steps or (args.epochs * steps if is_small else LARGE_EVERY)
    config.optimizer.warmup_steps = min(50, total // 10)
    config.log_every = max(1, min(config.log_every, total // 10))
    rate = 1e-4 if args.lora else 1e-5 if is_small else 5e-6
    config.optimizer.learning_rate = args.learning_rate or rate


def address(weights: str) -> str:
    """The address of MODEL@TAG, a published name of open_clip; others as they are."""
    model, at, tag = weights.partition("@")
    is_name = weights and not {"/", "\\"} & {*weights} and not os.path.exists(weights)
    if is_name and not at:
        raise ValueError(
            f"weights={weights}: there is no such file or folder; a published name has its tag, "
            "such as ViT-B-32@openai (`vlc-jax --list` has all)"
        )
    return f"open_clip://{model}/{tag}" if is_name else weights


def is_siglip(weights: str) -> bool:
    """True if the name, or config.json in the folder, says SigLIP; of a run, its losses."""
    try:
        with open(os.path.join(weights, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        is_named = str(config.get("model_type")).startswith("siglip")
        return is_named or "sigmoid" in config.get("losses", {})
    except (OSError, ValueError, AttributeError, TypeError):
        return "siglip" in os.path.basename(weights).lower()


def column_names(path: str) -> list[str]:
    """Names of a table's columns; [] of COCO's form, and where the source says what is wrong."""
    suffix = os.path.splitext(path)[1].lower()
    try:
        if pretrained.is_parquet(path):
            inside = sorted(os.listdir(path)) if os.path.isdir(path) else ()
            files = [os.path.join(path, name) for name in inside if name.endswith(".parquet")]
            return parquet.read_schema([*files, path][0]).names
        with open(path, encoding="utf-8-sig", newline="") as file:
            lines = [line for line in itertools.islice(file, 2) if line.strip()]
        if suffix == ".jsonl":
            return [*json.loads(lines[0])]
        if suffix not in (".csv", ".tsv"):
            return []
        line = lines[1] if lines[0].startswith("sep=") else lines[0]
        return next(csv.reader([line.strip()], delimiter=max("\t,;", key=line.count)))
    except (OSError, ValueError, TypeError, IndexError, StopIteration):
        return []


def use_own_texts(config: ConfigDict, method: str, columns: dict[str, str]) -> None:
    """Hard texts of the table's columns in place of the method's rules."""
    for side in ("negatives", "positives"):
        if side not in columns:
            continue
        if not config.input[side].count:
            print(f"the column {columns[side]!r} is not used: method={method} has no {side}",
                  file=sys.stderr)  # fmt: skip
            continue
        count = 1 if side == "positives" else config.input[side].count
        pretrained.use_texts(config.input[side], count, "skip", {"from_record": 1.0})


def use_sets(config: ConfigDict, args: arguments.SimpleNamespace) -> None:
    """Published sets args.sets in args.root; without, SugarCrepe if its files are there."""
    is_there = all(os.path.isdir(os.path.join(args.root, part)) for part in SUGARCREPE)
    for name in (args.sets or ("sugarcrepe" if is_there else "")).split("+"):
        if name:
            config.evals[name] = pretrained.published_set(name, {"root": args.root})

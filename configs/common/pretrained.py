"""Finetuning of pretrained weights: preprocessing and tokenizer per family, data, schedule."""

import json
import os
import re
from types import SimpleNamespace
from typing import Any

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

# Options of a generator behind published numbers: its authors' version, slips included.
AUTHORS = {"mode": "authors"}
# Loss option of a recipe, by its data: the papers' code takes equal captions as negatives; on the
# scenes they are so frequent that they are masked.
DUPLICATES = {"scenes": "mask", "coco": "keep"}

# Fields of config.input that belong to a model: a run that starts from another run copies them.
OF_MODEL = ("image_size", "crop", "eval_crop", "interpolation", "normalisation", "question")

ARGUMENTS = {"weights": "", "tokenizer": "", "path": "", "image_folder": ""}
# Arguments of `evaluate`, beside `sets`, which each recipe declares with the sets of its numbers.
FINETUNING = ARGUMENTS | {"validation": "", "root": ""}
ARO = "vg_relation+vg_attribution+coco_order+flickr30k_order"
RETRIEVAL = "coco_retrieval+flickr30k_retrieval"
WHATSUP = "whatsup_a_two_way+whatsup_b_two_way"
SPATIAL = "whatsup_a+whatsup_b+coco_spatial_one+coco_spatial_two+gqa_spatial_one+gqa_spatial_two"
TAGGER = "spacy:en_core_web_sm"
ORDERS = ("coco_order", "flickr30k_order")  # their shuffles need parts of speech
LAST = 10**9  # steps: config.eval.every for an evaluation after the last step alone


def use_clip(config: ConfigDict, args: SimpleNamespace, image_size: int = 224) -> None:
    """Model, preprocessing and tokenizer of OpenAI's and open_clip's CLIP.

    tokenizer: bpe_simple_vocab_16e6.txt.gz, Hugging Face's file or folder, or the workdir of a run
    that has one; by default the file beside the weights, or of an installed open_clip or clip.

    OpenAI's weights and open_clip's "-quickgelu" need activation quick_gelu, the default of the
    variants; open_clip's others need gelu. EVA-CLIP's activation comes with its variants.
    """
    _use(config, args, image_size, context_length=77)
    config.input.normalisation = "clip"
    config.input.crop = _centre_crop(args.weights)
    config.text.tokenizer = "clip"
    config.text.tokenizer_options = ConfigDict({"path": _tokenizer(args)})


def use_clip_hf(config: ConfigDict, args: SimpleNamespace, image_size: int = 224) -> None:
    """CLIP of open_clip with a tokenizer of Hugging Face: MetaCLIP 2, RoBERTa and XLM-RoBERTa.

    tokenizer: tokenizer.json or a folder with it; by default the weights' folder. Texts are
    repaired as CLIP's, and keep their case.
    """
    use_clip(config, args, image_size)
    config.text.tokenizer = "hf"
    special = {"eos_token": "</s>", "pad_token": "<pad>", "clean": "repair"}
    config.text.tokenizer_options.update(special)


def use_siglip(config: ConfigDict, args: SimpleNamespace, image_size: int = 224) -> None:
    """Model, preprocessing and tokenizer of SigLIP.

    tokenizer: SentencePiece's .model, tokenizer.json or a folder; by default the weights' folder.

    Texts lose case and punctuation and are padded to 64 tokens, always.
    """
    _use(config, args, image_size, context_length=64)
    config.input.normalisation = "siglip"
    config.input.crop = "naflex" if "naflex" in args.variant else "none"
    config.text.tokenizer = "siglip"
    config.text.tokenizer_options = ConfigDict({"path": _tokenizer(args)})
    config.model.logit_scale_max = None  # published scales are about 117


def use_siglip2(config: ConfigDict, args: SimpleNamespace, image_size: int = 224) -> None:
    """SigLIP 2, of fixed resolution or NaFlex: SigLIP with Gemma's vocabulary; texts keep their
    punctuation.

    Its authors and Hugging Face resize bilinearly, open_clip bicubically.
    """
    use_siglip(config, args, image_size)
    config.model.vocab_size = 256_000
    config.input.interpolation = "bilinear"
    gemma = {"clean": "lower", "eos_token": "<eos>", "pad_token": "<pad>"}
    config.text.tokenizer_options.update(gemma)


def use_pe(config: ConfigDict, args: SimpleNamespace, image_size: int = 224) -> None:
    """PE-Core of open_clip, timm and its authors: texts as CLIP's, of 32 tokens (bigG: 72)."""
    use_clip(config, args, image_size)
    config.text.context_length = 72 if "bigG" in args.variant else 32
    config.input.normalisation = "siglip"
    config.input.crop, config.input.interpolation = "none", "bilinear"


def use_openvision(config: ConfigDict, args: SimpleNamespace, image_size: int = 224) -> None:
    """OpenVision and CLIPA of open_clip.

    tokenizer: BERT's tokenizer.json (bert-base-uncased) or a folder with it; by default the
    weights' folder. Texts have its start token, no end token, and the full length.
    """
    _use(config, args, image_size, context_length=32 if "CLIPA" in args.variant else 80)
    config.input.normalisation = "imagenet"
    config.input.crop, config.input.interpolation = "none", "bilinear"
    config.text.tokenizer = "hf"
    special = {"eos_token": "[PAD]", "pad_token": "[PAD]", "left_out": "[SEP]", "clean": "repair"}
    config.text.tokenizer_options = ConfigDict({"path": _tokenizer(args), **special})


def use_dinov2(config: ConfigDict, args: SimpleNamespace, image_size: int = 224) -> None:
    """DINOv2, which has no texts; its pixels as in Hugging Face's folders."""
    _use(config, args, image_size, context_length=config.text.context_length)
    config.input.normalisation = "imagenet"
    config.input.crop = "centre_margin"


QWEN3_VL = {  # of Qwen3-VL-Embedding's code
    "instruction": "Represent the user's input.",
    "prefix": "<|im_start|>system\n{}<|im_end|>\n<|im_start|>user\n",
    "suffix": "<|im_end|>\n<|im_start|>assistant\n",
    "marks": ("<|vision_start|>", "<|vision_end|>"),
    "padding": "<|endoftext|>",
    "image_size": 1360,  # a mosaic of its most tokens, 1,800
}


def use_qwen3_vl(config: ConfigDict, path: str, image_size: int, prefix: str) -> None:
    """Qwen3-VL as an embedder: its conversation, and images at their own aspect ratio.

    path: of the tokenizer.   image_size: of the square with the most pixels.   prefix: the
    conversation up to the picture or text.
    """
    config.model.update({"name": "qwen3_vl", "variant": "Qwen3-VL-2B", "text_tower": False})
    config.input.image_size, config.input.crop = image_size, "native"
    config.input.normalisation = "siglip"
    config.text.tokenizer, config.text.context_length = "hf", 256
    special = dict.fromkeys(("eos_token", "pad_token"), QWEN3_VL["padding"])
    config.text.tokenizer_options = ConfigDict({"path": path, **special, "has_start": False})
    head = {"prefix": prefix, "suffix": QWEN3_VL["suffix"], "marks": (151_652, 151_653)}
    # a decoder that is trained whole needs float32
    config.model.head = ConfigDict({"decoder": "qwen3_vl_2b", "param_dtype": "compute", **head})


def _centre_crop(weights: str) -> str:
    """The centre crop of the weights' library: Hugging Face's for its folders, and for a run;
    torchvision's for files of OpenAI and open_clip."""
    is_folder = os.path.exists(os.path.join(weights, "config.json"))
    is_file = os.path.basename(weights).startswith(("model.", "pytorch_model."))
    is_hugging_face = is_folder or is_file or weights.startswith("hf://")
    return "centre" if not weights or is_hugging_face else "centre_torchvision"


def use_random_crops(config: ConfigDict, crop: str = "random_resized") -> None:
    """Random resized crops in training, .9 to 1 of the area as in open_clip, or another random
    crop; evaluation crops the centre as before. NaFlex keeps whole images of any aspect ratio."""
    if config.input.crop == "naflex":
        return
    if config.input.crop != "centre":
        config.input.eval_crop = config.input.crop
    config.input.crop = crop


FAMILIES = {
    "clip": use_clip,
    "clip_hf": use_clip_hf,
    "siglip": use_siglip,
    "siglip2": use_siglip2,
    "pe": use_pe,
    "openvision": use_openvision,
    "dinov2": use_dinov2,
}
# those whose loss is CLIP's: arguments of the recipes for CLIP, beside `size`
FAMILIES_OF_CLIP = ("clip", "clip_hf", "pe", "openvision")
OF_WEIGHTS = ("blip", "xvlm", "qwen3_vl")  # families whose whole config comes from the weights


def use_family(config: ConfigDict, args: SimpleNamespace) -> None:
    """Model, preprocessing and tokenizer of args.family at args.size pixels; those of
    OF_WEIGHTS, pixels too, come from their weights."""
    if args.family in OF_WEIGHTS:
        config.init_from, config.model.name = args.weights or None, f"init_from:{args.family}"
        if args.tokenizer:
            config.text.tokenizer_options = ConfigDict({"path": args.tokenizer})
        read(config, source_of(args.path, args.image_folder))
        return
    if args.family not in FAMILIES:
        raise ValueError(f"family is one of {[*FAMILIES, *OF_WEIGHTS]}; got {args.family!r}")
    FAMILIES[args.family](config, args, args.size)


def use_run_or_weights(config: ConfigDict, args: SimpleNamespace) -> None:
    """Model, tokenizer and preprocessing of the run `args.run`, or of `args.weights` without one.

    Raises ValueError for a run beside weights or a tokenizer.
    """
    if not args.run:
        use_family(config, args)
        return
    for name in ("weights", "tokenizer"):
        if getattr(args, name):
            raise ValueError(f"run={args.run} has {name} of its own: leave out {name}=, or run=")
    start_from(config, args.run)


def start_from(config: ConfigDict, run: str) -> None:
    """Model, tokenizer and preprocessing of the run in the folder `run`, and its weights."""
    path = os.path.join(run, "config.json")
    if not os.path.isfile(path):
        where = "has no config.json" if os.path.isdir(run) else "does not exist"
        raise ValueError(
            f"{run} {where}: name the workdir of a run; published weights: --config "
            f"finetune:weights={run},data=TABLE"
        )
    try:
        with open(path, encoding="utf-8") as file:
            saved: dict[str, Any] = json.load(file)
        saved["model"], saved["text"], saved["input"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is not the config of a run ({error}); published weights: --config "
            f"finetune:weights={run},data=TABLE"
        ) from None
    config.init_from = run
    # of the devices, not of the model
    config.model.update({**saved["model"], "dtype": "auto", "attention": "auto"})
    if unknown := sorted(saved["text"].keys() - config.text.keys()):
        raise ValueError(
            f"init_from={run} is of another version of vlc_jax, with text.{unknown[0]}: export it "
            "with that version, or train it on with a config of this one and --allow_config_change"
        )
    config.text.update(saved["text"])
    for field in OF_MODEL:
        config.input[field] = saved["input"][field]
    config.optimizer.learning_rate /= 10


def _use(config: ConfigDict, args: SimpleNamespace, image_size: int, context_length: int) -> None:
    config.init_from = args.weights or None
    config.model.variant = args.variant
    config.input.image_size = image_size
    config.text.context_length = context_length
    read(config, source_of(args.path, args.image_folder))


def source_of(path: str, image_folder: str = "", table: str = "records") -> dict[str, str]:
    """The name and options of the source that reads `path`.

    A folder holds shards of vlc-jax prepare, or Parquet files, which are a table; a file is a table
    of images and captions, or is read by the source `table`. Image names are relative to
    `image_folder`, by default the folder of the file.
    """
    # a mixture of folders with their weights: "a:0.7+b:0.3"
    names = [path] if os.path.isdir(path) else re.sub(r":[\d.]+(?=\+|$)", "", path).split("+")
    is_table = is_parquet(path)
    if (
        path
        and not is_table
        and all(os.path.isdir(name) or not os.path.splitext(name)[1] for name in names)
    ):
        return {"source": "shards", "path": path}
    if table == "records":
        return {"source": table, "path": path} | (
            {"image_folder": image_folder} if image_folder else {}
        )
    files = path.split("+") if table == "llava" else [path]
    folder = image_folder or "+".join(os.path.dirname(file) or "." for file in files)
    return {"source": table, "annotations": path, "images": folder}


def is_parquet(path: str) -> bool:
    """True for a Parquet file, and for a folder with such files that is none of shards."""
    if not os.path.isdir(path):
        return path.lower().endswith(".parquet")
    names = os.listdir(path)
    return "manifest.json" not in names and any(name.lower().endswith(".parquet") for name in names)


def read(config: ConfigDict, source: dict[str, str], **options: Any) -> None:
    """Trains on the source that `source_of` returned, with further options of it."""
    options = {**source, **options}
    config.input.source = options.pop("source")
    config.input.source_options = ConfigDict(options)


def read_llava(config: ConfigDict, args: SimpleNamespace, **options: Any) -> None:
    """Trains on conversations of LLaVA at args.path, with these options, or on shards of them.

    Shards hold the answers that they were prepared with.
    """
    source = source_of(args.path, args.image_folder, "llava")
    read(config, source, **(options if source["source"] == "llava" else {}))


def use_columns(config: ConfigDict, **columns: str) -> None:
    """Names columns of a table of your own; shards and published files have none to name."""
    if config.input.source == "records":
        config.input.source_options.update(columns)


def use_texts(
    texts: ConfigDict,
    count: int,
    fallback: str,
    generators: dict[str, float],
    **options: dict[str, Any],
) -> None:
    """`count` hard negatives or positives per caption; generators: name -> share."""
    texts.count, texts.fallback = count, fallback
    texts.generators, texts.options = ConfigDict(generators), ConfigDict(options)


def use_given_negatives(config: ConfigDict, count: int, **columns: str) -> None:
    """`count` hard negatives of the column `negatives` of a table, and further columns."""
    use_texts(config.input.negatives, count, "skip", {"from_record": 1.0})
    use_columns(config, negatives_column="negatives", **columns)


def use_triplets(config: ConfigDict) -> None:
    """A hard negative and an image of it in each row, the columns `negatives` and `negative_image`;
    images, and images of negatives, are the rows of the batch by turns."""
    config.input.hard_images, config.batch_size = 1, 2 * config.batch_size
    use_given_negatives(config, 1, negative_image_column="negative_image")


def use_left_right(texts: ConfigDict) -> None:
    """One hard negative per caption with left and right exchanged, as its authors do."""
    use_texts(texts, 1, "skip", {"left_right": 1.0}, left_right=AUTHORS)


def _tokenizer(args: SimpleNamespace) -> str:
    """Path of the tokenizer: the argument, or the folder of the weights."""
    is_folder = os.path.isdir(args.weights) or _is_repository(args.weights)
    return args.tokenizer or (args.weights if is_folder else "")


def _is_repository(weights: str) -> bool:
    """True for an address of the hub, unless it ends with a file of a repository."""
    files = (".safetensors", ".json", ".pt", ".pth", ".bin", ".npz")
    return weights.startswith(("hf://", "open_clip://")) and not weights.endswith(files)


def five_epochs(config: ConfigDict, args: SimpleNamespace) -> None:
    """Five epochs with 50 steps of warmup, as the papers finetune, and `evaluate`."""
    config.steps, config.epochs = placeholder(int), 5.0
    config.batch_size = args.batch
    config.optimizer.warmup_steps = 50
    config.optimizer.clip_norm = None  # open_clip's default, which the papers keep
    config.checkpoint.every = 500
    evaluate(config, args)


def evaluate(config: ConfigDict, args: SimpleNamespace, **options: Any) -> None:
    """Evaluates retrieval on args.validation every 500 steps, if given, and the published sets
    args.sets in the folder args.root, without validation after the last step alone.

    options: further options of the published sets."""
    config.eval.every = LAST if args.root and not args.validation else 500
    validate(config, args)
    for name in args.sets.split("+") if args.root else ():
        config.evals[name] = published_set(name, {"root": args.root, **options})


def published_set(name: str, options: dict[str, Any], tagger: str = TAGGER) -> dict[str, Any]:
    """Options of the evaluation of a published set; tagger: parts of speech for the order sets."""
    return options | ({"tagger": tagger} if name in ORDERS else {})


def validate(config: ConfigDict, args: SimpleNamespace) -> None:
    """Evaluates retrieval on args.validation, a table or shards, if given."""
    if args.validation:
        validation = source_of(args.validation, args.image_folder)
        config.evals = ConfigDict({"retrieval": {"split": "all", **validation}})

"""Config of weights: inferred from other projects' arrays and files, or read from a run."""

from collections.abc import Collection, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from vlc_jax import weights
from vlc_jax.configs import default
from vlc_jax.configs.common import pretrained
from vlc_jax.errors import UsageError, known
from vlc_jax.input_pipeline.images import transforms
from vlc_jax.input_pipeline.tokenizers import TOKENIZERS
from vlc_jax.models import variants
from vlc_jax.run.workdir import is_workdir, saved_config
from vlc_jax.setup import (
    addresses,
    blip_config,
    data,
    exported_config,
    llava_config,
    qwen3_vl_config,
    weights_compatibility,
)

# Family of `pretrained.FAMILIES` -> variant families with its preprocessing.
VARIANT_FAMILIES = {
    "clip": ("openai", "resnet", "open_clip", "eva01", "eva02", "eva02_e"),
    "clip_hf": ("openai", "open_clip", "roberta", "xlm_roberta"),
    "siglip": ("siglip", "siglip_i18n"),
    "siglip2": ("siglip", "siglip_naflex"),
    "pe": ("pe", "pe_b", "pe_g"),
    "openvision": ("openvision", "clipa"),
    "dinov2": ("dinov2", "dinov2_g"),
}
# Format of weights -> variant families that only this format has.
FORMAT_FAMILIES = {
    "open_clip_eva01": ("eva01", "eva02_e"),
    "open_clip_eva02": ("eva02",),
    "open_clip_roberta": ("roberta", "xlm_roberta"),
    **dict.fromkeys(("open_clip_pe", "pe"), VARIANT_FAMILIES["pe"]),
    **dict.fromkeys(weights.naflex.FORMATS, ("siglip_naflex",)),
}
OF_WEIGHTS = "init_from"  # config.model.name for "the model of config.init_from"; also with ":HEAD"
POSITION_GRID = variants.FAMILIES["siglip_naflex"]["image"]["position_grid"]
GEMMA_TOKENS = 256_000  # SigLIP 2's vocabulary
# MetaCLIP 2's vocabularies, of mT5 (of L/14, of smaller ones) and XLM-V
WORLDWIDE_TOKENS = (250_100, 250_000, 901_629)


def completed(config: ConfigDict) -> ConfigDict:
    """The config itself, or with config.model.name=init_from[:HEAD] one completed from the weights.

    Fields of model, texts and pixels that have the default of configs/default.py are then set from
    the weights or the run at config.init_from.
    Raises UsageError without config.init_from, for a path that does not exist, or for weights with
    another head than the one named.
    """
    if not is_of_weights(config):
        return config
    if not config.init_from:
        raise UsageError("config.model.name=init_from needs init_from (of finetune: weights)")
    path, options = addresses.copy_of("config.init_from", config.init_from), {}
    if not path.exists():
        raise UsageError(f"config.init_from: no weights at {path}")
    if is_workdir(path):
        theirs = saved_config(path)
    else:
        options = config.text.tokenizer_options
        named = config.model.variant
        variant = None if named == default.get_config().model.variant else named
        theirs = config_of_weights(path, tokenizer=options.get("path"), variant=variant)
    head = config.model.name.partition(":")[2]
    if head in pretrained.OF_WEIGHTS and theirs.model.name != head:
        raise UsageError(
            f"family={head} takes weights of {head}, but {path} has those of {theirs.model.name}: "
            "set the family of these weights, or name others"
        )
    plain = default.get_config()
    plain.model.name = config.model.name
    made = config.copy_and_resolve_references()
    with made.unlocked():
        model_fields = {
            k: v for k, v in theirs.model.to_dict().items() if k not in exported_config.OF_DEVICES
        }
        _fill(made.model, model_fields | ({"name": head} if head else {}), plain.model)
        text_fields = theirs.text.to_dict()
        if made.text.tokenizer not in (plain.text.tokenizer, theirs.text.tokenizer):
            del text_fields["tokenizer_options"]  # which another tokenizer does not have
        _fill(made.text, text_fields, plain.text)
        input_fields = {name: theirs.input[name] for name in pretrained.OF_MODEL}
        if made.input.crop != plain.input.crop:  # random crops in training
            input_fields["eval_crop"] = data.image_transform(theirs, is_training=False).crop
        _fill(made.input, input_fields, plain.input)
    return made.lock()


def is_of_weights(config: ConfigDict) -> bool:
    """True if the weights at config.init_from determine the model."""
    return config.model.name.partition(":")[0] == OF_WEIGHTS


def _fill(ours: ConfigDict, theirs: Mapping[str, Any], plain: ConfigDict) -> None:
    """Sets the fields of `ours` that have the default value (`plain`) to the value of `theirs`."""
    for name, value in theirs.items():
        if isinstance(value, Mapping) and plain.get(name):
            _fill(ours[name], value, plain[name])
        elif isinstance(value, Mapping):  # empty by default: keys of the user's choice
            ours[name] = ConfigDict({**value, **ours[name].to_dict()})
        elif ours[name] == plain[name]:
            ours[name] = value


def config_of_weights(
    path: str | Path,
    *,
    tokenizer: str | None = None,
    family: str | None = None,
    variant: str | None = None,
    image_size: int | None = None,
    context_length: int | None = None,
    activation: str | None = None,
    instruction: str | None = None,
) -> ConfigDict:
    """The evaluation config for weights of OpenAI, open_clip, Hugging Face, big_vision, BLIP or
    X-VLM.

    A folder of vlc-jax export has its own (`exported_config`).
    tokenizer: its file or folder, a run or an exported folder with the same tokenizer, or the name
      of a tokenizer without files ("bytes"); by default searched in the folder of the weights.
    family: clip | clip_hf | siglip | siglip2 | pe | openvision | dinov2; variant: a name of
      `models.variants.VARIANTS`;
      image_size: in pixels; all three by default inferred from the arrays.
    context_length: in tokens, by default that of the weights; 248 takes FG-CLIP's way of reading
      long texts, and stretches CLIP's 77 positions (`weights.position.stretched`).
    activation: by default from the files beside the weights, else the variant's (of CLIP variants
      OpenAI's quick_gelu).
    instruction: of Qwen3-VL-Embedding (`qwen3_vl_config.config_of_qwen3_vl`).

    Raises UsageError if the arrays match no known variant, or for an option that the files of
    these weights determine, and WeightsError if they cannot be read.
    """
    given: dict[str, Any] = {"family": family, "variant": variant, "activation": activation}
    if qwen3_vl_config.is_qwen3_vl(path):
        _refuse(path, "a Qwen3-VL, whose config.json", given, "qwen3_vl")
        qwen_options = (tokenizer, image_size, context_length, instruction)
        return qwen3_vl_config.config_of_qwen3_vl(path, *qwen_options)
    if instruction is not None:
        raise UsageError(f"instruction is of Qwen3-VL-Embedding, which {path} is not: leave it out")
    given["context_length"] = context_length
    if llava_config.is_llava(path):
        refused = given | {"image_size": image_size}
        _refuse(path, "a language model with an image tower, whose config.json", refused)
        return llava_config.config_of_llava(path, tokenizer)
    if (exported := exported_config.read(path)) is not None:
        _refuse(path, f"an exported folder, whose {exported_config.NAME}", given)
        return _exported(exported, tokenizer, image_size)
    arrays, format_ = weights.read(path, only_shapes=True)  # init_from reads and checks the values
    if format_ in blip_config.FORMATS:
        _refuse(path, "a BLIP, whose folder or file", given, "blip")
        shapes = weights.shapes_of(arrays, format_)
        return blip_config.config_of_blip(path, shapes, tokenizer, image_size)
    if format_ == blip_config.XVLM:
        _refuse(path, "an X-VLM, whose checkpoint", given, "xvlm")
        shapes = weights.shapes_of(arrays, format_)
        return blip_config.config_of_xvlm(path, shapes, tokenizer, image_size)
    if format_ == "hf_llm2clip":
        raise UsageError(
            f"{path} is an LLM2CLIP, whose texts are vectors of a language model: compute them by "
            "vlc_jax.tools.embed_text, and evaluate with a config (docs/mllm.md)"
        )
    return _two_towers(path, arrays, format_, tokenizer, image_size, given)


def _two_towers(
    path: str | Path,
    arrays: Mapping[str, np.ndarray],
    format_: str,
    tokenizer: str | None,
    image_size: int | None,
    given: Mapping[str, Any],
) -> ConfigDict:
    """The config for weights of two towers, whose family and variant their arrays have.

    given: family, variant, activation and context_length where the user says them, else None.
    """
    sizes = weights.sizes.read(weights.shapes_of(arrays, format_))
    family = given["family"] or _family(format_, sizes, arrays)
    known("family of weights", family, pretrained.FAMILIES)
    variant = given["variant"] or _variant(path, sizes, family, format_)
    known("variant", variant, variants.VARIANTS)
    metadata = weights.metadata.read(path)
    args = SimpleNamespace(
        weights=str(path), tokenizer=tokenizer or "", path="", image_folder="", variant=variant
    )
    config = default.get_config()
    with config.unlocked():
        pixels = image_size or _image_size(path, sizes, variant, metadata)
        pretrained.FAMILIES[family](config, args, pixels)
        if tokenizer:
            _use_tokenizer(config, tokenizer)
        _use_texts(config, sizes, format_, metadata)
        config.text.context_length = given["context_length"] or config.text.context_length
        _use_image_tower(config, sizes, format_, arrays)
        _apply(config, metadata, variant, path)
        _use_centre_crop(config, weights.centre_crop(format_))
        if given["activation"]:
            config.model.activation = given["activation"]
        config.evals = ConfigDict()
    return config


def _use_image_tower(
    config: ConfigDict, sizes: weights.sizes.Sizes, format_: str, arrays: Mapping[str, np.ndarray]
) -> None:
    """Sets what differs between image towers of the same sizes: registers, NaFlex."""
    registers = arrays.get("embeddings.register_tokens")
    if registers is not None and registers.ndim == 3:  # another shape is refused on loading
        config.model.image.registers = registers.shape[1]
    if format_ in weights.naflex.FORMATS:
        config.input.crop = transforms.NAFLEX
        if sizes.grid != POSITION_GRID:
            config.model.image.position_grid = sizes.grid


def _use_texts(
    config: ConfigDict, sizes: weights.sizes.Sizes, format_: str, metadata: Mapping[str, Any]
) -> None:
    """Sets tokens and vocabulary of the text tower, if the weights have one."""
    if not sizes.text:
        return
    config.model.vocab_size = sizes.vocab_size
    if format_ != "open_clip_roberta":
        config.text.context_length = sizes.context_length
    elif "context_length" in metadata:  # fewer tokens than its table of positions has rows
        config.text.context_length = metadata["context_length"]


def _refuse(path: str | Path, what: str, given: Mapping[str, Any], family: str = "") -> None:
    """Raises UsageError for a given option (not None), all of which `what` determines; `family`
    may be named."""
    for name, value in given.items():
        if value is not None and (name, value) != ("family", family):
            raise UsageError(f"{path} is {what} determines {name}: leave {name} out; got {value!r}")


def _exported(exported: ConfigDict, tokenizer: str | None, image_size: int | None) -> ConfigDict:
    """The config of an exported folder, with another tokenizer or size if there is one."""
    with exported.unlocked():
        exported.input.image_size = image_size or exported.input.image_size
        if tokenizer:
            _use_tokenizer(exported, tokenizer)
    return exported


def _use_tokenizer(config: ConfigDict, tokenizer: str) -> None:
    """Sets the tokenizer: its name, or that of a run or of an exported folder.

    The file or folder of another project's tokenizer is the path of the family's kind.
    """
    path, text = Path(tokenizer), config.text
    if not path.exists() and tokenizer in TOKENIZERS:
        text.tokenizer, text.tokenizer_options = tokenizer, ConfigDict()
        return
    theirs = saved_config(path) if is_workdir(path) else exported_config.read(path)
    if theirs is None:
        text.tokenizer_options.path = tokenizer
        return
    options = data.tokenizer_options(theirs)
    text.tokenizer, text.tokenizer_options = theirs.text.tokenizer, ConfigDict(options)
    for field in ("functional_words", "scenes"):
        text[field] = ConfigDict(theirs.text[field].to_dict())


def _family(format_: str, sizes: weights.sizes.Sizes, arrays: Mapping[str, np.ndarray]) -> str:
    if "dinov2" in format_:
        return "dinov2"
    if format_ in ("pe", "open_clip_pe"):
        return "pe"
    is_clip = format_ in ("openai", "open_clip")
    if format_ == "openvision" or (is_clip and "visual.ln_pre.weight" not in arrays):
        return "openvision"
    if "siglip" not in format_ and "big_vision" not in format_:
        is_own = format_ == "open_clip_roberta" or sizes.vocab_size in WORLDWIDE_TOKENS
        return "clip_hf" if is_own else "clip"
    return "siglip2" if sizes.vocab_size == GEMMA_TOKENS else "siglip"


def _variant(path: str | Path, sizes: weights.sizes.Sizes, family: str, format_: str) -> str:
    families: Collection[str] = FORMAT_FAMILIES.get(format_) or [
        name
        for name in VARIANT_FAMILIES[family]
        if all(name not in others for others in FORMAT_FAMILIES.values())
    ]
    matches = [
        name
        for name, variant in variants.VARIANTS.items()
        if variant.family in families
        and (variant.image[:2], variant.text[:2]) == (sizes.image, sizes.text)
        and variant.patch_size == sizes.patch_size
    ]
    # resolutions of one model have the same sizes: prefer the one with this position grid, then
    # the one with this vocabulary and context
    texts = {name: variants.options(name)["text"] or {} for name in matches}
    matches.sort(key=lambda name: texts[name].get("context_length", 0) != sizes.context_length)
    matches.sort(key=lambda name: texts[name].get("vocab_size", 0) != sizes.vocab_size)
    same_grid = [
        n for n in matches if variants.VARIANTS[n].image_size // sizes.patch_size == sizes.grid
    ]
    if not matches:
        raise UsageError(
            f"{path} has no variant of `vlc-jax --list`: image tower (width, depth) {sizes.image}, "
            f"patches of {sizes.patch_size}, text tower {sizes.text}; docs/extending.md adds one"
        )
    return (same_grid or matches)[0]


def _use_centre_crop(config: ConfigDict, centre: str) -> None:
    """Replaces a centre crop by that of the weights' library, in training and evaluation."""
    if (config.input.eval_crop or config.input.crop) in transforms.CENTRES:
        is_set = config.input.eval_crop or centre != "centre"
        config.input.crop, config.input.eval_crop = centre, centre if is_set else None


def _image_size(
    path: str | Path, sizes: weights.sizes.Sizes, variant: str, metadata: Mapping[str, Any]
) -> int:
    """Pixels per side, by the files beside the weights, else by the variant and the position grid.

    Raises UsageError if the files contradict the position grid.
    """
    pixels = metadata.get("image_size")
    # DINOv2, whose positions are of 518 pixels, and NaFlex: they are resampled always; OpenVision's
    # JAX checkpoints have none
    if not sizes.text or not sizes.grid or variants.VARIANTS[variant].family == "siglip_naflex":
        return pixels or variants.VARIANTS[variant].image_size
    if pixels is not None and pixels // sizes.patch_size != sizes.grid:
        raise UsageError(
            f"the files beside the weights at {path} are for images of {pixels} pixels, but the "
            f"weights have positions of {sizes.grid} x {sizes.grid} patches of {sizes.patch_size}: "
            "correct the size in the files, or name image_size=... (positions are resampled to it)"
        )
    pixels = pixels or variants.VARIANTS[variant].image_size
    return pixels if pixels // sizes.patch_size == sizes.grid else sizes.grid * sizes.patch_size


def _apply(config: ConfigDict, metadata: Mapping[str, Any], variant: str, path: str | Path) -> None:
    """Sets towers and preprocessing from the files beside the weights."""
    variant_options = variants.options(variant)
    for part in ("image", "text"):
        for field in ("activation", "epsilon"):
            if (value := metadata.get(f"{part}_{field}")) is not None:
                config.model[part][field] = value
    # Only if they differ: the config of a run that resumes must stay the same.
    switches = (
        ("image_heads", "image", "heads", None),
        ("text_heads", "text", "heads", None),
        ("is_causal", "text", "is_causal", True),
        ("text_pooling", "text", "pooling", "eos"),
    )
    for key, part, field, plain in switches:
        if key in metadata and metadata[key] != variant_options[part].get(field, plain):
            config.model[part][field] = metadata[key]
    if name := weights_compatibility.normalisation(metadata, path):
        config.input.normalisation = name
    for key, field in (("interpolation", "interpolation"), ("crop", "eval_crop")):
        if key in metadata:
            config.input[field] = metadata[key]

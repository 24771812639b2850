"""Metadata of weights: activations, heads, pooling, preprocessing of images and texts.

Weights load without an error under wrong metadata and lose accuracy (QuickGELU instead of GELU has
changed published results). The values in the files beside the weights are therefore compared with
the config before anything runs.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from vlc_jax.errors import WeightsError
from vlc_jax.input_pipeline.stores import hub
from vlc_jax.weights import files, huggingface_config, open_clip_config
from vlc_jax.weights.sections import Key

# Metadata key -> the config field with the same meaning; {} is the name of the tokenizer.
FIELDS = {
    **dict.fromkeys(("image_activation", "text_activation"), "config.model.activation"),
    **dict.fromkeys(("image_epsilon", "text_epsilon"), "config.model.epsilon"),
    "image_heads": "config.model.image.heads",
    "text_heads": "config.model.text.heads",
    "is_causal": "config.model.text.is_causal",
    "text_pooling": "config.model.text.pooling",
    "image_size": "config.input.image_size",  # not compared: position embeddings are resampled
    **dict.fromkeys(("mean", "std"), "config.input.normalisation"),
    "interpolation": "config.input.interpolation",
    "crop": "config.input.eval_crop",  # short side, then centre[_torchvision] | none (squash) | pad
    "context_length": "config.text.context_length",
    "vocab_size": "config.model.vocab_size",  # rows of the embedding
    **dict.fromkeys(("lower_case", "strips_punctuation"), "config.text.tokenizer_options.clean"),
    **dict.fromkeys(("eos_token", "eos_id"), "config.text.tokenizer_options.eos_token"),
    "pad_token": "config.text.tokenizer_options.pad_token",
    "padding_side": "config.text.tokenizer",  # all our tokenizers pad on the right
}

# Class of Hugging Face's tokenizer -> its text cleaning. GemmaTokenizer: SigLIP 2's folders set
# do_lower_case for it, which the class ignores; the authors lower-case.
_CLEANING: dict[str, dict[str, Any]] = {
    "CLIPTokenizer": {"lower_case": True, "strips_punctuation": False},
    "SiglipTokenizer": {"lower_case": True, "strips_punctuation": True},
    "Siglip2Tokenizer": {"lower_case": True, "strips_punctuation": False},
    "GemmaTokenizer": {"lower_case": True},
}


def read(path: str | Path, names: Collection[str] | None = None) -> dict[str, Any]:
    """Metadata in the files beside the weights at `path`; {} without such files.

    names: the files to read; None for all. Keys are a subset of FIELDS; tokens are strings. Raises
    WeightsError for damaged files.
    """
    directory = folder(path)
    metadata: dict[str, Any] = {}
    for name, reader in _READERS.items():
        is_selected = directory is not None and (names is None or name in names)
        if is_selected and (file := directory / name).exists():
            content = files.read_json(file)
            try:
                metadata |= _checked(reader(content, str(file)), file)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise WeightsError(f"{file} is damaged: {error!r}") from error
    return metadata


def _checked(metadata: dict[str, Any], file: Path) -> dict[str, Any]:
    """`metadata` unchanged. Raises WeightsError for moments of other than three channels."""
    for key in {"mean", "std"} & metadata.keys():
        if len(metadata[key]) != 3:
            raise WeightsError(f"{file}: {key} is of {len(metadata[key])} channels; only 3 are")
    return metadata


def folder(path: str | Path) -> Path | None:
    """The folder whose config files belong to the weights at `path`; None without such a folder.

    A single file must have a standard name (`hub.WEIGHTS`): other files may lie beside config
    files of other models.
    """
    path = Path(path)
    if path.is_dir():
        return path
    return path.parent if path.name in hub.WEIGHTS else None


def _tokenizer(config: Mapping[str, Any], file: str) -> dict[str, Any]:
    metadata = dict(_CLEANING.get(str(config.get("tokenizer_class")).removesuffix("Fast"), {}))
    if side := Key("padding_side", "").read(config, file):
        metadata["padding_side"] = side
    return metadata | _special_tokens(config, file)


def _special_tokens(config: Mapping[str, Any], file: str) -> dict[str, Any]:
    tokens = {key: config[key] for key in ("eos_token", "pad_token") if config.get(key)}
    texts = {k: v["content"] if isinstance(v, Mapping) else v for k, v in tokens.items()}
    return {key: Key(key, str).read(texts, file) for key in texts}


PROCESSORS = ("preprocessor_config.json", "processor_config.json")  # files of pixels
# In this order: a later file wins, as processor_config.json does in transformers 5.
_READERS = {
    "config.json": huggingface_config.model,
    "preprocessor_config.json": huggingface_config.processor,
    "processor_config.json": huggingface_config.nested_processor,
    "open_clip_config.json": open_clip_config.model,
    "special_tokens_map.json": _special_tokens,
    "tokenizer_config.json": _tokenizer,
}

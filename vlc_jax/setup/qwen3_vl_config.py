"""Configs for weights of Qwen3-VL-Embedding, and of Qwen3-VL read as an embedder."""

import unicodedata
from pathlib import Path

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.configs.common import pretrained
from vlc_jax.errors import UsageError, WeightsError
from vlc_jax.input_pipeline.tokenizers.decoder import DecoderTokenizer
from vlc_jax.setup import llava_config
from vlc_jax.weights import files, llava

OURS = pretrained.QWEN3_VL


def is_qwen3_vl(path: str | Path) -> bool:
    """True for a folder of Hugging Face with Qwen3-VL, by its config.json."""
    return llava_config.json_of(path).get("model_type") == "qwen3_vl"


def before(instruction: str) -> str:
    """The conversation before the picture or text; a full stop ends an instruction without one."""
    instruction = instruction.strip() or OURS["instruction"]
    is_ended = unicodedata.category(instruction[-1]).startswith("P")
    return OURS["prefix"].format(instruction if is_ended else f"{instruction}.")


def config_of_qwen3_vl(
    path: str | Path,
    tokenizer: str | None = None,
    image_size: int | None = None,
    context_length: int | None = None,
    instruction: str | None = None,
) -> ConfigDict:
    """The evaluation config for a folder of Qwen3-VL-Embedding.

    tokenizer: its file or folder; by default the folder of the weights.   image_size: side of the
    square with the most pixels.   context_length: tokens of a text, without those of the
    conversation.   instruction: the system message, for images and texts.
    Raises WeightsError for a config.json of another architecture, UsageError for a tokenizer
    without the tokens of the conversation.
    """
    sizes, folder = llava.read_sizes(path), Path(tokenizer or path)
    _check_pixels(Path(path))
    try:
        vocabulary = DecoderTokenizer(folder)
        marks = tuple(vocabulary.id_of(name) for name in OURS["marks"])
        added = vocabulary.encode("", has_start=True)
    except ValueError as error:
        raise UsageError(f"{error}: name Qwen's tokenizer.json with tokenizer=...") from error
    config = default.get_config()
    with config.unlocked():
        config.init_from = str(path)
        prefix = before(instruction or "")
        pixels = image_size or OURS["image_size"]
        pretrained.use_qwen3_vl(config, str(folder), pixels, prefix)
        config.text.context_length = context_length or config.text.context_length
        config.model.vocab_size, config.model.logit_scale_init = sizes["lm"]["vocab"], 1.0
        config.model.image = ConfigDict(sizes["image"])
        # and what the post-processor of the tokenizer's file adds behind every text
        suffix = config.model.head.suffix + vocabulary.decode(added, special=True)
        head = {"decoder": sizes["lm"], "suffix": suffix, "marks": marks}
        config.model.head = ConfigDict({**config.model.head, **head})
    return config


def _check_pixels(path: Path) -> None:
    """Raises WeightsError if the processor's file normalises pixels in another way."""
    file = path / "preprocessor_config.json"
    values = files.read_json(file) if file.is_file() else {}
    for key in ("image_mean", "image_std"):
        if list(values.get(key, ())) not in ([], [0.5] * 3):
            raise WeightsError(f"{file}: {key} is {values[key]}; only 0.5 is supported")

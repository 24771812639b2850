"""The config of LLaVA's weights: a captioner that scores by VQAScore."""

import json
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from configs import default
from input_pipeline.tokenizers.decoder import DecoderTokenizer
from vlc_jax.errors import UsageError
from vlc_jax.weights import llava

# VQAScore (Lin et al. 2024, arXiv:2404.01291), in the wording of "Exploring How Generative MLLMs
# Perceive More Than CLIP with the Same Vision Encoder" (ACL 2025): the score of an image and a
# caption is the mean log probability of "Yes" and of the token that ends the answer; its
# exponential is what its code prints.
QUESTION = 'Does this figure show "{}"? Please answer yes or no.'
BEFORE_IMAGE = "USER: "  # of Vicuna's template, without a system text
START_TOKENS = ("<s>", "<|begin_of_text|>")


def is_llava(path: str | Path) -> bool:
    """Whether a folder's config.json is of LLaVA, in Hugging Face's or in its own form."""
    file = Path(path) / "config.json"
    if not file.is_file():
        return False
    try:
        config = json.loads(file.read_text("utf-8"))
    except ValueError:
        return False
    return isinstance(config, dict) and (
        config.get("model_type") == "llava" or "mm_vision_tower" in config
    )


def config_of_llava(path: str | Path, tokenizer: str | None = None) -> ConfigDict:
    """The config with which LLaVA's weights in a folder are evaluated.

    tokenizer: its file or folder; by default that of the weights.
    Raises WeightsError for a config.json of another architecture.
    """
    sizes = llava.read_sizes(path)
    files = _tokenizer_files(Path(tokenizer or path))
    config = default.get_config()
    with config.unlocked():
        config.init_from = str(path)
        config.input.image_size = sizes["image"]["image_size"]
        config.input.crop = _crop(Path(path))
        config.text.tokenizer, config.text.context_length = "conversation", 128
        config.text.tokenizer_options = ConfigDict({"path": str(files), "question": QUESTION})
        config.model.update({"name": "captioner", "variant": "L/14", "text_tower": False})
        config.model.vocab_size, config.model.logit_scale_init = sizes["lm"]["vocab"], 1.0
        config.model.image = ConfigDict(_image(sizes))
        config.model.head = ConfigDict(
            {
                "decoder": sizes["lm"],
                "param_dtype": "compute",
                "select": sizes["select"],
                "stage": "raw",
                "scores": "answer",
                "prefix": _prefix(files),
            }
        )
    return config


def _image(sizes: dict[str, Any]) -> dict[str, Any]:
    """Fields of the image tower, with the blocks up to the hidden state that is used."""
    image = {key: value for key, value in sizes["image"].items() if key != "image_size"}
    return image | {"depth": image["depth"] + 1 + sizes["layer"], "projection": None}


def _tokenizer_files(path: Path) -> Path:
    """A SentencePiece model, or tokenizer.json or its folder. Raises UsageError for neither."""
    if path.is_dir() and not (path / "tokenizer.json").exists():
        path = path / "tokenizer.model"
    if not path.exists():
        raise UsageError(
            f"there is no tokenizer.json and no tokenizer.model in {path.parent}: name one with "
            "tokenizer=..."
        )
    return path


def _prefix(files: Path) -> tuple[int, ...]:
    """Ids of the start token, if the vocabulary has one, and of the text before the image, which
    LLaVA's own code tokenizes apart from that behind it."""
    tokenizer = DecoderTokenizer(files)
    start = [tokenizer.id_of(name) for name in START_TOKENS if name in tokenizer][:1]
    return (*start, *tokenizer.encode(BEFORE_IMAGE))


def _crop(path: Path) -> str:
    """As the folder says: padded to a square (LLaVA's own image_aspect_ratio), or the centre."""
    config = json.loads((path / "config.json").read_text("utf-8"))
    return "pad" if config.get("image_aspect_ratio") == "pad" else "centre"

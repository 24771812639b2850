"""The config of LLaVA's weights: a captioner that scores by VQAScore."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from configs import default
from input_pipeline.tokenizers.decoder import DecoderTokenizer
from vlc_jax.errors import UsageError
from vlc_jax.generative import prompts
from vlc_jax.weights import llava

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
    words, theirs = DecoderTokenizer(files), json.loads((Path(path) / "config.json").read_text())
    template = prompts.TEMPLATES[_template(theirs, sizes["family"], words)]
    config = default.get_config()
    with config.unlocked():
        config.init_from = str(path)
        config.input.image_size = sizes["image"]["image_size"]
        config.input.crop = "pad" if theirs.get("image_aspect_ratio") == "pad" else "centre"
        config.text.tokenizer, config.text.context_length = "conversation", 128
        config.text.tokenizer_options = ConfigDict(_tokenizer(files, words, template))
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
                "prefix": _prefix(words, template),
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


def _template(config: Mapping[str, Any], family: str, words: DecoderTokenizer) -> str:
    """The name of the prompt format of a checkpoint."""
    if family == "phi3":
        return "phi_3_v"
    if "<|eot_id|>" in words:
        return "llama_3_v"
    return "llava_v1" if "mm_vision_tower" in config else "llava_hf"


def _tokenizer(files: Path, words: DecoderTokenizer, template: prompts.Template) -> dict[str, Any]:
    """Options of the tokenizer: VQAScore of every caption, and what follows the image."""
    ends = [name for name in template.terminators if name in words]
    return {
        "path": str(files),
        "question": prompts.VQASCORE,
        "template": template.text.partition(prompts.IMAGE)[2],
        **({"eos_token": ends[0], "terminators": ends[1:]} if ends else {}),
    }


def _prefix(words: DecoderTokenizer, template: prompts.Template) -> tuple[int, ...]:
    """Ids of the start token, if the vocabulary has one, and of the text before the image, which
    LLaVA's own code tokenizes apart from that behind it."""
    start = [words.id_of(name) for name in START_TOKENS if name in words][:1]
    return (*start, *words.encode(template.text.partition(prompts.IMAGE)[0]))

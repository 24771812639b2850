"""Configs for weights of LLaVA and its kin: captioners that score by VQAScore."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.errors import UsageError
from vlc_jax.evaluators import prompts
from vlc_jax.input_pipeline.tokenizers import special_tokens
from vlc_jax.input_pipeline.tokenizers.decoder import DecoderTokenizer
from vlc_jax.models import llava as models
from vlc_jax.setup import weights_compatibility
from vlc_jax.weights import files as weights_files
from vlc_jax.weights import flamingo, llava, metadata, paligemma
from vlc_jax.weights.llava_sizes import FAMILIES

# Key of config.json in an exported folder (tools/llava_folder.py), ignored by other programs: the
# prompt of the run, {"prefix": text or token ids before the image, "tokenizer_options": {...}}, or
# {"tokenizer": name} of a run whose prompt is not that of a conversation.
PROMPT = "vlc_jax"
# Folder of the Q-Former's tokenizer in InstructBLIP's.
INSTRUCTION = "qformer_tokenizer"


def is_llava(path: str | Path) -> bool:
    """True for a folder of LLaVA (Hugging Face's or the authors'), PaliGemma, Gemma 3,
    InstructBLIP, Otter or OpenFlamingo, by its config.json, and for a PaliGemma file of
    big_vision."""
    if paligemma.is_paligemma(path):
        return True
    config = json_of(path)
    return str(config.get("model_type")) in models.KINDS or "mm_vision_tower" in config


def json_of(path: str | Path) -> dict[str, Any]:
    """The object in the config.json of a folder; {} for other paths and damaged files."""
    file = Path(path) / "config.json"
    if not file.is_file():
        return {}
    try:
        config = json.loads(file.read_text("utf-8"))
    except (ValueError, RecursionError):  # refused where the weights are read
        return {}
    return config if isinstance(config, dict) else {}


def config_of_llava(path: str | Path, tokenizer: str | None = None) -> ConfigDict:
    """The evaluation config for weights of LLaVA, PaliGemma, Gemma 3, InstructBLIP, Otter or
    OpenFlamingo.

    tokenizer: its file or folder; by default the folder of the weights, for OpenFlamingo that of
      its language model.
    Raises WeightsError for a config.json of another architecture, UsageError for the export of a
    captioner without a prompt.
    """
    sizes, path = llava.read_sizes(path), Path(path)
    written = json_of(path)
    exported = written.get(PROMPT)
    if exported is not None and "prefix" not in exported:
        raise UsageError(
            f"{path} was exported from a captioner with the tokenizer {exported.get('tokenizer')!r}"
            " and no conversations, which LLaVA's prompt would change: load the run itself"
        )
    folder = path if path.is_dir() else path.parent
    kind, added = sizes["kind"], FAMILIES[sizes["kind"]].tokens
    if kind == flamingo.OPEN_FLAMINGO:
        folder = weights_files.beside(folder, flamingo.LANGUAGE)
    files = _tokenizer_files(Path(tokenizer or folder))
    vocabulary = DecoderTokenizer(files, added)
    _check_vocabulary(files, vocabulary, sizes)
    template = prompts.TEMPLATES[_template(written, sizes, vocabulary)]
    config = default.get_config()
    with config.unlocked():
        config.init_from = str(path)
        config.input.update(_pixels(path, sizes, written))
        config.text.tokenizer, config.text.context_length = "conversation", 128
        config.text.tokenizer_options = ConfigDict(
            _tokenizer(files, vocabulary, template)
            | _image_token(written, kind, vocabulary)
            | ({"added_tokens": added, "pad_token": added[-1]} if added else {})
        )
        variant = "SigLIP-SO400M/14-224" if kind in ("paligemma", "gemma3") else "L/14"
        config.model.update({"name": "captioner", "variant": variant, "text_tower": False})
        config.model.vocab_size, config.model.logit_scale_init = sizes["lm"]["vocab"], 1.0
        config.model.image = ConfigDict(_image(sizes))
        config.model.head = ConfigDict(
            {
                "decoder": sizes["lm"],
                "param_dtype": "compute",
                "select": sizes["select"],
                "side": sizes.get("side"),
                **models.KINDS[kind],
                "scores": "answer",
                "prefix": _prefix(vocabulary, template, kind),
                # rows per call: about 1 GB of logits of 128 tokens, also with Gemma's vocabulary
                "chunk": 8 if sizes["lm"]["vocab"] > 200_000 else 64,
            }
        )
        if kind == "instructblip":
            _set_instruction(config, sizes, files, vocabulary)
        if exported is not None:
            _set_exported_prompt(config, exported)
    return config


def _set_instruction(
    config: ConfigDict, sizes: Mapping[str, Any], files: Path, vocabulary: DecoderTokenizer
) -> None:
    """Sets the Q-Former, and the tokenizer that writes a question in its vocabulary, too.

    Raises UsageError if the folder of its tokenizer is missing.
    """
    folder = (files if files.is_dir() else files.parent) / INSTRUCTION
    if not (folder / "tokenizer.json").exists():
        raise UsageError(
            f"there is no tokenizer.json of the Q-Former in {folder}: InstructBLIP reads a "
            "question in its vocabulary, too; copy that folder of the weights there"
        )
    config.model.name = "instructblip"
    config.model.head = ConfigDict({**config.model.head, "qformer": sizes["qformer"], "prefix": ()})
    # Half of a row for each vocabulary, as the authors' code cuts both after 128 tokens.
    config.text.tokenizer = "instruction"
    config.text.context_length = 2 * min(128, sizes["qformer"]["positions"])
    options = config.text.tokenizer_options
    options.instruction_path = str(folder)
    # The published folder declares "</s>", with which the authors trained.
    declared = special_tokens.declared("bos_token", files if files.is_file() else files / "x")
    options.start_token = declared or vocabulary.start_token or ""


def _set_exported_prompt(config: ConfigDict, exported: Mapping[str, Any]) -> None:
    """Sets prefix and tokenizer options from PROMPT in an exported folder's config.json."""
    prefix = exported["prefix"]
    prefix = prefix if isinstance(prefix, str) else tuple(prefix)
    config.model.head = ConfigDict({**config.model.head, "prefix": prefix})
    options = config.text.tokenizer_options
    # the path is this machine's, and the question evaluation's
    ours = {key: options[key] for key in ("path", "question")}
    config.text.tokenizer_options = ConfigDict({**exported["tokenizer_options"], **ours})


def _image(sizes: dict[str, Any]) -> dict[str, Any]:
    """Fields of the image tower, cut behind the block whose hidden state the head reads."""
    image = {key: value for key, value in sizes["image"].items() if key != "image_size"}
    return image | {"depth": image["depth"] + 1 + sizes["layer"], "projection": None}


def _tokenizer_files(path: Path) -> Path:
    """Path of a SentencePiece model, or of tokenizer.json or its folder.

    Raises UsageError if there is neither.
    """
    if path.is_dir() and not (path / "tokenizer.json").exists():
        path = path / "tokenizer.model"
    if not path.exists():
        raise UsageError(
            f"there is no tokenizer.json and no tokenizer.model in {path.parent}: name one with "
            "tokenizer=..."
        )
    return path


def _pixels(path: Path, sizes: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of config.input: size, crop, normalisation and interpolation.

    They are those of the processor's file. Without one, LLaVA pads images to a square or crops the
    centre (its image_aspect_ratio); SigLIP towers squash.
    Raises UsageError for a size that contradicts the image tower, and for unknown moments.
    """
    side = sizes["image"]["image_size"]
    pixels: dict[str, Any] = {"image_size": side, **FAMILIES[sizes["kind"]].pixels}
    if path.is_file():  # big_vision's format, whose resize is bilinear
        return pixels | {"interpolation": "bilinear"}
    values = metadata.read(path, metadata.PROCESSORS)
    pixels |= {k: values[k] for k in ("image_size", "crop", "interpolation") if k in values}
    if name := weights_compatibility.normalisation(values, path):
        pixels["normalisation"] = name
    patch = sizes["image"]["patch_size"]
    if pixels["image_size"] // patch != side // patch:
        raise UsageError(
            f"{path}: the processor's images have {pixels['image_size']} pixels, the image tower "
            f"of config.json {side}: correct one of the files"
        )
    if written.get("image_aspect_ratio") == "pad":
        pixels["crop"] = "pad"
    return pixels


def _template(
    written: Mapping[str, Any], sizes: Mapping[str, Any], vocabulary: DecoderTokenizer
) -> str:
    """Name of a checkpoint's prompt template."""
    if sizes["kind"] != "llava":
        return {"gemma3": "gemma_3"}.get(sizes["kind"], sizes["kind"])
    if sizes["family"] == "phi3":
        return "phi_3_v"
    if "<|eot_id|>" in vocabulary:
        return "llama_3_v"
    return "llava_v1" if "mm_vision_tower" in written else "llava_hf"


def _tokenizer(
    files: Path, vocabulary: DecoderTokenizer, template: prompts.Template
) -> dict[str, Any]:
    """Options of the tokenizer: VQAScore's question and the template behind the image."""
    ends = [name for name in template.terminators if name in vocabulary]
    return {
        "path": str(files),
        **_padding(files, vocabulary),
        "question": prompts.VQASCORE,
        "template": template.text.partition(prompts.IMAGE)[2],
        **({"separator": template.separator} if template.separator != " " else {}),
        **({"eos_token": ends[0], "terminators": ends[1:]} if ends else {}),
    }


def _padding(files: Path, vocabulary: DecoderTokenizer) -> dict[str, str]:
    """Tokenizer option for a SentencePiece model without a padding piece and without a usable
    declaration beside it: <unk>, as in LLaVA's code. No decoder reads padding."""
    if files.suffix != ".model" or "<pad>" in vocabulary or "<unk>" not in vocabulary:
        return {}
    name = special_tokens.declared("pad_token", files)
    return {} if name is not None and name in vocabulary else {"pad_token": "<unk>"}


def _image_token(
    written: Mapping[str, Any], kind: str, vocabulary: DecoderTokenizer
) -> dict[str, str]:
    """Tokenizer option for a folder of Hugging Face's LLaVA, {} for the other kinds.

    Its processor tokenizes a prompt with the image token in it. The other kinds have a special
    token behind the image, which separates it from the text either way.
    """
    is_hugging_face = kind == "llava" and "mm_vision_tower" not in written
    is_one = is_hugging_face and prompts.IMAGE in vocabulary
    return {"image_token": prompts.IMAGE} if is_one else {}


def _check_vocabulary(files: Path, vocabulary: DecoderTokenizer, sizes: Mapping[str, Any]) -> None:
    """Raises UsageError for another tokenizer than that of Otter's or OpenFlamingo's MPT, whose
    added tokens would have other ids: the embeddings are as many as its tokens, or some more."""
    kind, count, vocab = sizes["kind"], vocabulary.vocab_size, sizes["lm"]["vocab"]
    is_other = count != vocab if kind == flamingo.OPEN_FLAMINGO else count > vocab
    if kind in flamingo.KINDS and is_other:
        raise UsageError(
            f"{files} has {count} tokens with those that {kind} adds, and the weights have {vocab} "
            "embeddings: name the tokenizer of their language model with tokenizer=..."
        )


def _prefix(vocabulary: DecoderTokenizer, template: prompts.Template, kind: str) -> tuple[int, ...]:
    """Ids of the start token, if there is one, and of the template's text before the image; in
    Flamingo also of the token <image>."""
    if kind in flamingo.KINDS:  # MPT's tokenizer adds no start token
        return (vocabulary.id_of(prompts.IMAGE),)
    before = vocabulary.encode(template.text.partition(prompts.IMAGE)[0])
    start = vocabulary.start_token
    if start is None or "<bos>" in template.text:  # Gemma's templates have it behind the image
        return tuple(before)
    return (vocabulary.id_of(start), *before)

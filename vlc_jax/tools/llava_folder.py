"""A captioner over CLIP's image tower as a folder of LLaVA, for `tools.export`."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from vlc_jax.errors import UsageError, WeightsError
from vlc_jax.input_pipeline.stores import any_path
from vlc_jax.models import captioner
from vlc_jax.run.workdir import is_workdir, saved_config
from vlc_jax.setup import data, llava_config
from vlc_jax.types.setup import Setup
from vlc_jax.weights import llava

# Vocabulary sizes with an image token are multiples of it, as in llava-hf's checkpoints.
VOCAB_MULTIPLE = 64
# Fields of the decoder that are not part of its architecture.
_COMPUTED = ("dtype", "param_dtype", "remat", "is_causal", "parent", "name")
_IMAGE = ("width", "depth", "heads", "image_size", "patch_size", "activation", "epsilon")


def sizes(setup: Setup, workdir: Path) -> dict[str, Any]:
    """The architecture, in the format of `weights.llava.read_sizes`.

    The parameters do not determine the family of the language model and the image token: both come
    from the LLaVA folder that the run started from, through any number of runs. Without such a
    folder the family is Llama, or Mistral for a decoder with a window (which computes the same as
    Phi-3). An image token outside the vocabulary becomes the first id after it, and the vocabulary
    is extended (`write`).

    Raises UsageError for another head, WeightsError for a captioner that is not a LLaVA.
    """
    model, head = setup.model, setup.model.head
    if not isinstance(head, captioner.Captioner):
        raise UsageError(f"{workdir} is no captioner, and --to llava needs one: use another --to")
    if (
        head.stage != "raw"
        or head.select == "pooled"
        or not getattr(model.image, "pre_norm", False)
    ):
        raise WeightsError(
            f"LLaVA reads tokens of CLIP's tower before its last norm, and {workdir} reads "
            f"select={head.select!r}, stage={head.stage!r}; use the model from its workdir"
        )
    if head.select == "cls":
        raise WeightsError(
            f"{workdir} reads the class token alone, which transformers' LLaVA cannot "
            "(vision_feature_select_strategy); use the model from its workdir"
        )
    decoder, image = head.language_model, model.image
    if decoder.unit_offset or decoder.is_centred:
        name = "Gemma" if decoder.unit_offset else "MPT"
        raise WeightsError(f"no LLaVA has the language model of {workdir}, {name}")
    family = "mistral" if decoder.window else "llama"
    base = _base(setup.origin.path) or {
        "family": family,
        "kind": "llava",
        "image_id": decoder.vocab,
    }
    image_id, vocab = base["image_id"], decoder.vocab
    if not 0 <= image_id < vocab:  # transformers embeds the id before it inserts image tokens
        image_id, vocab = vocab, -(-(vocab + 1) // VOCAB_MULTIPLE) * VOCAB_MULTIPLE
    names = (field.name for field in dataclasses.fields(decoder) if field.name not in _COMPUTED)
    lm = {name: getattr(decoder, name) for name in names}
    lm["vocab"] = vocab
    lm["scaling"] = lm["scaling"] and dataclasses.asdict(lm["scaling"])
    tower = {name: getattr(image, name) for name in _IMAGE}
    tower["mlp_width"] = image.mlp_width or 4 * image.width
    return {
        **base,
        "image_id": image_id,
        "lm": lm,
        "image": {**base.get("image", {}), **tower},
        "layer": -1,
        "select": head.select,
    }


def write(
    folder: Path, params: Mapping[str, Any], sizes: Mapping[str, Any], setup: Setup, workdir: Path
) -> None:
    """Writes weights, config.json (with the padding of images and, for us,
    the prompt format, llava_config.PROMPT), and generation_config.json (the ids that end an
    answer).
    """
    params = jax.tree.map(np.asarray, params)
    head = {**params["head"], "lm": _with_vocabulary(params["head"]["lm"], sizes["lm"]["vocab"])}
    llava.save({"image": params["image"], **head}, sizes, folder)
    path, more = folder / "config.json", dict[str, Any]()
    if setup.evaluation.transform.crop == "pad":
        more["image_aspect_ratio"] = "pad"
    if setup.tokenizer.reads_conversations and setup.tokenizer_path:
        more[llava_config.PROMPT] = _prompt(workdir)
        ends = {"eos_token_id": list(setup.tokenizer.terminators)}
        any_path.write_json(folder / "generation_config.json", ends, indent=2)
    else:
        more[llava_config.PROMPT] = {"tokenizer": setup.config["text"]["tokenizer"]}
    any_path.write_json(path, any_path.read_json(path) | more, indent=2)


def _with_vocabulary(lm: Mapping[str, Any], vocab: int) -> dict[str, Any]:
    """The language model with a vocabulary of `vocab` tokens: rows of new tokens are the mean of
    the existing rows, as in transformers."""
    embedding = lm["token_embedding"]["embedding"]
    more = vocab - len(embedding)
    if not more:
        return dict(lm)

    def longer(rows: np.ndarray) -> np.ndarray:
        mean = rows.mean(axis=0, keepdims=True, dtype=np.float32).astype(rows.dtype)
        return np.concatenate([rows, np.repeat(mean, more, axis=0)])

    extended = {**lm, "token_embedding": {"embedding": longer(embedding)}}
    return extended | ({"head": longer(lm["head"].T).T} if "head" in lm else {})


def _prompt(workdir: Path) -> dict[str, Any]:
    """The prompt format of a run's captioner, for llava_config.PROMPT: the text or ids before the
    image, and options of the tokenizer."""
    config = saved_config(workdir)
    # the folder itself, and VQAScore's options
    left_out = ("path", "question", "answer")
    options = data.tokenizer_options(config).items()
    return {
        "prefix": config.model.head.get("prefix", ()),
        "tokenizer_options": {key: value for key, value in options if key not in left_out},
    }


def _base(path: str | None) -> dict[str, Any] | None:
    """Sizes of the LLaVA folder that the weights at `path` started from; None without one."""
    while path and is_workdir(Path(path)):
        path = saved_config(Path(path)).init_from
    return llava.read_sizes(path) if path and llava_config.is_llava(path) else None

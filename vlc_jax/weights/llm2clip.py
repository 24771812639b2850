"""LLM2CLIP's released models: Hugging Face's CLIP image tower, and a text adapter as text tower.

The adapter's modules follow `TextProj` in the authors' code (microsoft/LLM2CLIP): a Sequential of
four blocks {ln, fn.0, fn.3}, a norm and a linear map. In their remote-code models the adapter is
called `text_adapter.adaptor`; the names of its blocks there could not be verified. Files with other
names are refused.
"""

from pathlib import Path
from typing import Any

from vlc_jax.errors import WeightsError
from vlc_jax.weights import files, huggingface, rename
from vlc_jax.weights.openai import dense, norm
from vlc_jax.weights.rename import Rule, rule

BLOCKS = 4
ADAPTER = "text_adapter.adaptor"
NAMES = ("vision_model.embeddings.class_embedding", f"{ADAPTER}.{BLOCKS + 1}.weight")


def rules() -> list[Rule]:
    """Rules of the whole model."""
    image = [each for each in huggingface.clip_rules() if each.is_of("image")]
    return [*image, *adapter_rules(), rule("logit_scale", "logit_scale", rename.SCALAR)]


def adapter_rules() -> list[Rule]:
    """Rules of the adapter, models.text_vectors.VectorTower with connector="llm2clip"."""
    blocks: list[Rule] = []
    for index in range(BLOCKS):
        theirs, ours = f"{ADAPTER}.{index}", f"text/block_{index}"
        blocks += [
            *norm(f"{theirs}.ln", f"{ours}_norm"),
            *dense(f"{theirs}.fn.0", f"{ours}_up"),
            *dense(f"{theirs}.fn.3", f"{ours}_down"),
        ]
    last = [*norm(f"{ADAPTER}.{BLOCKS}", "text/norm")]
    return [*blocks, *last, *dense(f"{ADAPTER}.{BLOCKS + 1}", "text/projection")]


def load_adapter(path: str | Path) -> dict[str, Any]:
    """The adapter's parameters in a file or folder, float32, with the shapes of the file.

    Raises WeightsError if the adapter is missing or incomplete.
    """
    arrays = files.open_arrays(path)
    try:
        rules_ = adapter_rules()
        expected = {path: () for rule_ in rules_ for path in rule_.ours}
        adapter = {name: arrays[name] for name in arrays if name.startswith(f"{ADAPTER}.")}
        return rename.unflatten(rename.load(rules_, adapter, expected))["text"]
    except WeightsError as error:
        raise WeightsError(f"{path}: {error}") from error

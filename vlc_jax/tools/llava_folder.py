"""A captioner over CLIP's image tower as a folder of LLaVA, for `tools.export`."""

import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

import input_pipeline
from vlc_jax.errors import UsageError, WeightsError
from vlc_jax.models import captioner
from vlc_jax.run.workdir import is_workdir, saved_config
from vlc_jax.setup import Setup, llava_config
from vlc_jax.weights import llava

# Fields of the decoder that are no sizes: how it is computed.
_COMPUTED = ("dtype", "param_dtype", "remat", "is_causal", "parent", "name")
_IMAGE = ("width", "depth", "heads", "image_size", "patch_size", "activation", "epsilon")


def sizes(setup: Setup, workdir: Path) -> dict[str, Any]:
    """The architecture, as `weights.llava.read_sizes` gives it. What the parameters do not say, the
    family of the language model and the image token, is that of the folder of LLaVA from which the
    run started, over any number of runs; without one Llama's, with a window Mistral's, which has
    the arithmetic of Phi-3, and the first id behind its tokens.

    Raises UsageError for another head, WeightsError for a captioner that is no LLaVA.
    """
    model, head = setup.model, setup.model.head
    if not isinstance(head, captioner.Captioner):
        raise UsageError(f"{workdir} is no captioner, and LLaVA is one: use another --to")
    if head.stage != "raw" or head.select == "pooled" or not model.image.pre_norm:
        raise WeightsError(
            f"LLaVA reads tokens of CLIP's tower before its last norm, and {workdir} reads "
            f"select={head.select!r}, stage={head.stage!r}; it is used from its workdir"
        )
    decoder, image = head.language_model, model.image
    if decoder.unit_offset:
        raise WeightsError(f"no LLaVA has the language model of {workdir}, Gemma")
    family = "mistral" if decoder.window else "llama"
    base = _base(setup.origin.path) or {"family": family, "image_id": decoder.vocab}
    names = (field.name for field in dataclasses.fields(decoder) if field.name not in _COMPUTED)
    lm = {name: getattr(decoder, name) for name in names}
    lm["scaling"] = lm["scaling"] and dataclasses.asdict(lm["scaling"])
    tower = {name: getattr(image, name) for name in _IMAGE}
    tower["mlp_width"] = image.mlp_width or 4 * image.width
    return {
        **base,
        "lm": lm,
        "image": {**base.get("image", {}), **tower},
        "layer": -1,
        "select": head.select,
    }


def write(folder: Path, params: Mapping[str, Any], sizes: Mapping[str, Any], setup: Setup) -> None:
    """Weights, config.json, which says whether images are padded, and the tokenizer's files."""
    params = jax.tree.map(np.asarray, params)
    llava.save({"image": params["image"], **params["head"]}, sizes, folder)
    if setup.evaluation.transform.crop == "pad":
        path = folder / "config.json"
        config = json.loads(path.read_text("utf-8")) | {"image_aspect_ratio": "pad"}
        path.write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    if setup.tokenizer_path:
        for file in input_pipeline.tokenizer_files(setup.tokenizer_path):
            shutil.copy(file, folder / file.name)


def _base(path: str | None) -> dict[str, Any] | None:
    """Sizes of the folder of LLaVA that the weights at `path` started from; None without one."""
    while path and is_workdir(Path(path)):
        path = saved_config(Path(path)).init_from
    return llava.read_sizes(path) if path and llava_config.is_llava(path) else None

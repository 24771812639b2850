"""A LLaVA of a few thousand random numbers, as a folder of Hugging Face's, with its tokenizer; what
is done with such a folder."""

import functools
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tokenizers
from ml_collections import ConfigDict
from PIL import Image

from tests.support import plain_llava
from tests.support.sets import mmvp, whatsup, winoground
from vlc_jax.configs import default
from vlc_jax.configs.eval import llava as llava_config
from vlc_jax.evaluate import mode
from vlc_jax.run.processes.preemption import StopSignal
from vlc_jax.run.workdir import Workdir
from vlc_jax.setup import resolve
from vlc_jax.train import loop
from vlc_jax.types.setup import Setup
from vlc_jax.weights import llava as weights
from vlc_jax.weights import lm_config

WORDS = ("<pad>", "</s>", "<s>", "USER:", "ASSISTANT:", "Yes", "\n", "red", "blue", "Does", "this",
         "figure", "show", '"a', 'circle"?', "Please", "answer", "yes", "or", "no.", "left",
         "right", "on", "under", "A", "B", "(a)", "Is", "the")  # fmt: skip
IMAGE_ID = 29
LM = {"vocab": 30, "width": 16, "depth": 2, "heads": 4, "mlp_width": 24, "kv_heads": 2,
      "head_width": None, "epsilon": 1e-5, "theta": 1e4, "scaling": None, "window": None,
      "is_tied": False, "activation": "silu", "unit_offset": False,
      "scales_embeddings": False}  # fmt: skip
IMAGE = {"width": 16, "depth": 3, "heads": 2, "mlp_width": 24, "image_size": 8, "patch_size": 4,
         "activation": "quick_gelu", "epsilon": 1e-5}  # fmt: skip
SIZES = {"family": "llama", "lm": LM, "image": IMAGE, "layer": -2, "image_id": IMAGE_ID}


def write(folder: Path, select: str = "patch", scale: float = 0.3) -> tuple[plain_llava.LLaVA, Any]:
    """Writes the folder; returns the model and its parameters."""
    sizes = SIZES | {"select": select}
    model = plain_llava.build(sizes)
    shapes = jax.eval_shape(functools.partial(plain_llava.init, model), jax.random.key(0))
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: rng.normal(0, scale, x.shape).astype(np.float32), shapes)
    weights.save(params, sizes, folder)
    write_tokenizer(folder)
    return model, params


def write_config(folder: Path) -> None:
    """config.json alone, for shapes."""
    (folder / "config.json").write_text(json.dumps(lm_config.write(SIZES | {"select": "patch"})))


def write_tokenizer(folder: Path) -> None:
    """tokenizer.json of WORDS, which stand between spaces and line ends; others are <pad>."""
    library = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>")
    )
    split = tokenizers.Regex(r"\n|[^\s]+")
    library.pre_tokenizer = tokenizers.pre_tokenizers.Split(split, "removed", invert=True)
    library.save(str(folder / "tokenizer.json"))


def pictures(count: int, side: int = 8) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.integers(0, 256, (side, side, 3), np.uint8) for _ in range(count)]


def evaluated(
    model: Path, folder: Path, protocols: str, sets: str = "whatsup_a_two_way+mmvp+winoground"
) -> tuple[Setup, dict[str, tuple[dict, list[dict]]], str]:
    """Evaluates a model on sets in miniature; its setup, name -> (result, rows of its cases), and
    the report."""
    for each in (whatsup, mmvp, winoground):
        each.write(folder / "sets")
    argument = f"path={model},root={folder / 'sets'},sets={sets},protocols={protocols},count=4"
    setup = resolve(llava_config.get_config(argument), "eval")
    workdir = Workdir(folder / "evaluated")
    try:
        mode.evaluate_workdir(setup, workdir, StopSignal(), False)
    finally:
        workdir.close()
    found = {}
    for name in setup.evaluation.benchmarks:
        result = json.loads((workdir.path / f"evals/{name}/0.json").read_text())
        lines = (workdir.path / f"evals/{name}/0.scores.jsonl").read_text().splitlines()
        found[name] = result, [json.loads(line) for line in lines]
    return setup, found, (workdir.path / "report.md").read_text()


def trained(model: Path, folder: Path, question: str, **fields: Any) -> Path:
    """The workdir of two steps on conversations, with further fields of the config."""
    folder.mkdir(exist_ok=True)
    talk = [{"from": "human", "value": f"<image>\n{question}"}, {"from": "gpt", "value": "on"}]
    rows = [{"id": str(i), "image": f"{i}.png", "conversations": talk} for i in range(8)]
    (folder / "talk.json").write_text(json.dumps(rows))
    for i, picture in enumerate(pictures(8)):
        Image.fromarray(picture).save(folder / f"{i}.png")
    config = default.get_config()
    with config.unlocked():
        config.init_from, config.model.name = str(model), "init_from"
        config.input.source, config.input.llava.annotations = "llava", str(folder / "talk.json")
        config.input.llava.images, config.input.llava.answers = str(folder), "conversation"
        config.input.preview, config.text.context_length = 4, 32
        config.losses = ConfigDict({"caption": default.loss(weight=1.0)})
        config.batch_size, config.steps, config.optimizer.warmup_steps = 8, 2, 1
        config.update(fields)
    workdir = Workdir(folder / "trained")
    try:
        loop.train(resolve(config), workdir, StopSignal(), False)
    finally:
        workdir.close()
    return workdir.path

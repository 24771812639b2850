"""A LLaVA of a few thousand random numbers, as a folder of Hugging Face's, with its tokenizer; what
is done with such a folder."""

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict
from PIL import Image

from tests.support import helpers, miniature, plain_llava, small_models, training
from tests.support.sets import mmvp, whatsup, winoground
from vlc_jax.configs import default
from vlc_jax.configs.eval import llava as llava_config
from vlc_jax.evaluation import mode
from vlc_jax.run.processes.preemption import StopSignal
from vlc_jax.run.workdir import Workdir
from vlc_jax.setup import resolve
from vlc_jax.types.setup import Setup
from vlc_jax.weights import llava as weights
from vlc_jax.weights import llava_sizes

WORDS = ("<pad>", "</s>", "<s>", "USER:", "ASSISTANT:", "Yes", "\n", "red", "blue", "Does", "this",
         "figure", "show", '"a', 'circle"?', "Please", "answer", "yes", "or", "no.", "left",
         "right", "on", "under", "A", "B", "(a)", "Is", "the")  # fmt: skip
IMAGE_ID = 29
LM = small_models.LM | {"vocab": 30, "depth": 2}
SIZES = {
    "family": "llama",
    "lm": LM,
    "kind": "llava",
    "image": small_models.IMAGE,
    "layer": -2,
    "image_id": IMAGE_ID,
}


def write(folder: Path, select: str = "patch", scale: float = 0.3) -> tuple[plain_llava.LLaVA, Any]:
    """Writes the folder; returns the model and its parameters."""
    sizes = SIZES | {"select": select}
    model = plain_llava.build(sizes)
    params = small_models.drawn(functools.partial(plain_llava.init, model), scale=scale)
    weights.save(params, sizes, folder)
    write_tokenizer(folder)
    return model, params


def write_config(folder: Path) -> None:
    """config.json alone, for shapes."""
    (folder / "config.json").write_text(json.dumps(llava_sizes.write(SIZES | {"select": "patch"})))


def write_tokenizer(folder: Path) -> None:
    """tokenizer.json of WORDS, which stand between spaces and line ends; others are <pad>."""
    small_models.write_tokenizer(folder, WORDS, "<pad>", r"\n|[^\s]+")


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
        found[name] = result, helpers.rows(workdir.path / f"evals/{name}/0.scores.jsonl")
    return setup, found, (workdir.path / "report.md").read_text()


def trained(model: Path, folder: Path, question: str, **fields: Any) -> Path:
    """The workdir of two steps on conversations, with further fields of the config."""
    folder.mkdir(exist_ok=True)
    talk = miniature.talk(f"<image>\n{question}", "on")
    rows = [{"id": str(i), "image": f"{i}.png", "conversations": talk} for i in range(8)]
    (folder / "talk.json").write_text(json.dumps(rows))
    for i, picture in enumerate(pictures(8)):
        Image.fromarray(picture).save(folder / f"{i}.png")
    config = default.get_config()
    with config.unlocked():
        config.init_from, config.model.name = str(model), "init_from"
        config.input.source = "llava"
        files = {"annotations": str(folder / "talk.json"), "images": str(folder)}
        config.input.source_options = {**files, "answers": "conversation"}
        config.input.preview, config.text.context_length = 4, 32
        config.losses = ConfigDict({"caption": default.loss(weight=1.0)})
        config.batch_size, config.steps, config.optimizer.warmup_steps = 8, 2, 1
        config.update(fields)
    return training.train(config, folder / "trained")

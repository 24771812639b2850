"""Weights of other projects through the command line: evaluate, finetune, export, and refuse."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.support import helpers, small_models
from vlc_jax import models

SIZES = {
    "image": {"width": 24, "heads": 2, "depth": 2, "patch_size": 8, "projection": 16},
    "text": {"width": 16, "heads": 2, "depth": 2, "projection": 16},
}
OVERRIDES = {**SIZES, "image_size": 32, "vocab_size": 260, "context_length": 77, "eos_id": 257}
CONFIG = """
from vlc_jax.configs import records


def get_config(argument=None):
    config = records.get_config(argument)
    with config.unlocked():
        config.model.variant = "B/32"
        config.model.image = {image}
        config.model.text = {text}
        config.model.activation = "gelu"
        config.evals = {{"retrieval": {{"split": "all"}}}}
    return config
"""


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A folder with photos, a table, a config, and random weights as Hugging Face writes them."""
    folder = tmp_path_factory.mktemp("start")
    names = helpers.write_photos(folder, 12)
    helpers.write_jsonl(folder, names)
    (folder / "config.py").write_text(CONFIG.format(**SIZES))
    model = models.build("clip", "B/32", activation="gelu", **OVERRIDES)
    fields = {"hidden_act": "gelu", "layer_norm_eps": 1e-5, "vocab_size": 260}
    small_models.write_hugging_face(folder / "hf", model, "hf_clip", 0.1, **fields)
    return folder


def write_tokenizer(folder):
    """Words beside the weights, and that they are lower-cased and end otherwise than they do."""
    small_models.write_tokenizer(folder, ("<end>", "<pad>", "</s>", "red", "dog"), "<pad>")
    tokens = {"eos_token": "</s>", "pad_token": "<pad>"}
    settings = {"tokenizer_class": "CLIPTokenizer", **tokens}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def run(start, workdir, *flags, weights="hf", code=0):
    table = start / "captions.jsonl"
    config = f"{start / 'config.py'}:path={table},batch=4,steps=4,size=32,holdout=0"
    flags = (f"--config.init_from={start / weights}", *flags)
    return helpers.run(config, workdir, *flags, code=code)


def test_weights_are_evaluated_without_training(start, tmp_path):
    run(start, tmp_path / "run", "--mode=eval")
    assert (tmp_path / "run/evals/retrieval/0.json").exists()
    assert (tmp_path / "run/report.html").exists()
    for _ in range(2):
        other = run(start, tmp_path / "run", "--mode=eval", "--config.input.eval_crop=none")
        # other pixels are another question, and the same ones are not
        assert len([*(tmp_path / "run/evals").glob("retrieval@*/0.json")]) == 1
    assert "retrieval: kept from before" in other.stdout


def test_finetuning_starts_from_them_resumes_and_is_exported(start, tmp_path):
    workdir, out = tmp_path / "run", tmp_path / "exported"
    frozen = "--config.optimizer.learning_rate=0.0"
    run(start, workdir, frozen)
    events = helpers.rows(workdir / "events.jsonl")
    assert [row["path"] for row in events if row["event"] == "weights"] == [str(start / "hf")]
    run(start, workdir, frozen)

    export = ("-m", "vlc_jax.tools.export", "--workdir", workdir)
    for target, file in (("hf", "model"), ("open_clip", "open_clip_model")):
        helpers.python(*export, "--to", target, "--out", out / target, code=0)
        assert (out / target / f"{file}.safetensors").exists()
    before, after = (load_file(f / "model.safetensors") for f in (start / "hf", out / "hf"))
    assert before.keys() == after.keys()
    for name, array in before.items():  # a learning rate of 0 changes nothing but the clamp
        if name != "logit_scale":
            np.testing.assert_array_equal(after[name], array)
    assert json.loads((out / "hf/config.json").read_text())["vision_config"]["hidden_act"] == "gelu"
    assert "| `retrieval` | image→text R@1 |" in (out / "hf/README.md").read_text()
    done = helpers.python(*export, "--to", "big_vision", "--out", out / "bv", code=2)
    assert "big_vision has no CLIP format" in done.stderr
    assert sorted(path.name for path in out.iterdir()) == ["hf", "open_clip"]


@pytest.mark.parametrize(
    ("damage", "flags", "code", "words"),
    [
        ("missing", (), 2, ["no weights at"]),
        ("truncated", (), 3, ["damaged"]),
        ("", ("--config.model.activation=quick_gelu",), 2, ["image_activation is gelu"]),
        ("tokenizer", (), 2, ["'bytes' is not the one of", "as '</s>' (2, here none)"]),
        (
            "tokenizer",
            (
                "--config.text.tokenizer=hf",
                "--config.text.tokenizer_options.path={folder}",
                "--config.text.tokenizer_options.eos_token=<end>",
            ),
            2,
            [
                "lower_case is True, here False (config.text.tokenizer_options.clean)",
                "eos_token is </s>, here <end> (config.text.tokenizer_options.eos_token)",
            ],
        ),
    ],
)
def test_weights_that_do_not_fit_are_refused_untrained(start, tmp_path, damage, flags, code, words):
    """One of each kind; tests/weights and tests/setup have the others."""
    folder = tmp_path / "hf"
    if damage != "missing":
        shutil.copytree(start / "hf", folder)
    if damage == "tokenizer":
        write_tokenizer(folder)
    if damage == "truncated":
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-100])
    flags = [flag.format(folder=folder) for flag in flags]
    done = run(start, tmp_path / "run", *flags, weights=folder, code=code)
    assert all(word in done.stderr for word in words), done.stderr
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "run").glob("checkpoints/*"))

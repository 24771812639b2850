"""Weights of other projects through the command line: evaluate, finetune, export, and refuse."""

import json

import numpy as np
import pytest
import tokenizers
from safetensors.numpy import load_file, save_file

from tests.support import helpers
from vlc_jax import models, weights

SIZES = {
    "image": {"width": 24, "heads": 2, "depth": 2, "patch_size": 8, "projection": 16},
    "text": {"width": 16, "heads": 2, "depth": 2, "projection": 16},
}
OVERRIDES = {**SIZES, "image_size": 32, "vocab_size": 260, "context_length": 77, "eos_id": 257}
ARCHITECTURE = weights.Architecture(8, {"image": 2, "text": 2}, may_cut_text=True)
CONFIG = """
from vlc_jax.configs import records


def get_config(argument=None):
    config = records.get_config(argument)
    with config.unlocked():
        config.model.variant = "B/32"
        config.model.image = {image}
        config.model.text = {text}
        config.model.activation = "gelu"
        config.evals.retrieval.split = "all"
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
    rng = np.random.default_rng(0)
    params = weights.unflatten(
        {
            path: rng.normal(size=x.shape, scale=0.1).astype(np.float32)
            for path, x in weights.flatten(shapes(model)).items()
        }
    )
    (folder / "hf").mkdir()
    save_file(weights.save(params, "hf_clip", ARCHITECTURE), folder / "hf/model.safetensors")
    tower = {"hidden_act": "gelu", "layer_norm_eps": 1e-5}
    text = {**tower, "vocab_size": 260}
    config = {"model_type": "clip", "vision_config": tower, "text_config": text}
    (folder / "hf/config.json").write_text(json.dumps(config))
    return folder


def write_tokenizer(folder):
    """Words beside the weights, and that they are lower-cased and end otherwise than they do."""
    words = {"<end>": 0, "<pad>": 1, "</s>": 2, "red": 3, "dog": 4}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<pad>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    tokens = {"eos_token": "</s>", "pad_token": "<pad>"}
    settings = {"tokenizer_class": "CLIPTokenizer", **tokens}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def shapes(model):
    import jax

    return jax.eval_shape(lambda key: models.init(model, key), jax.random.key(0))


def run(start, workdir, *flags, weights="hf"):
    table = start / "captions.jsonl"
    config = f"{start / 'config.py'}:path={table},batch=4,steps=4,size=32,holdout=0"
    return helpers.run(config, workdir, f"--config.init_from={start / weights}", *flags)


def test_weights_are_evaluated_without_training(start, tmp_path):
    done = run(start, tmp_path / "run", "--mode=eval")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run/evals/retrieval/0.json").exists()
    assert (tmp_path / "run/report.html").exists()
    for _ in range(2):
        other = run(start, tmp_path / "run", "--mode=eval", "--config.input.eval_crop=none")
        assert other.returncode == 0, other.stderr
        # other pixels are another question, and the same ones are not
        assert len([*(tmp_path / "run/evals").glob("retrieval@*/0.json")]) == 1
    assert "retrieval: kept from before" in other.stdout


def test_finetuning_starts_from_them_resumes_and_is_exported(start, tmp_path):
    workdir, out = tmp_path / "run", tmp_path / "exported"
    frozen = "--config.optimizer.learning_rate=0.0"
    done = run(start, workdir, frozen)
    assert done.returncode == 0, done.stderr
    events = helpers.rows(workdir / "events.jsonl")
    assert [row["path"] for row in events if row["event"] == "weights"] == [str(start / "hf")]
    again = run(start, workdir, frozen)
    assert again.returncode == 0, again.stderr

    export = ("-m", "vlc_jax.tools.export", "--workdir", workdir)
    for target, file in (("hf", "model"), ("open_clip", "open_clip_model")):
        done = helpers.python(*export, "--to", target, "--out", out / target)
        assert done.returncode == 0, done.stderr
        assert (out / target / f"{file}.safetensors").exists()
    before, after = (load_file(f / "model.safetensors") for f in (start / "hf", out / "hf"))
    assert before.keys() == after.keys()
    for name, array in before.items():  # a learning rate of 0 changes nothing but the clamp
        if name != "logit_scale":
            np.testing.assert_array_equal(after[name], array)
    assert json.loads((out / "hf/config.json").read_text())["vision_config"]["hidden_act"] == "gelu"
    assert "| retrieval | image_to_text_r1 |" in (out / "hf/README.md").read_text()
    done = helpers.python(*export, "--to", "big_vision", "--out", out / "bv")
    assert done.returncode == 2
    assert "big_vision has no CLIP format" in done.stderr
    assert sorted(path.name for path in out.iterdir()) == ["hf", "open_clip"]


@pytest.mark.parametrize(
    ("damage", "flags", "code", "words"),
    [
        ("missing", (), 2, ["no weights at"]),
        ("truncated", (), 3, ["damaged"]),
        ("nan", (), 3, ["not finite", "image/norm/scale"]),
        ("extra", (), 3, ["head.weight", "no parameter of this model"]),
        ("none", ("--config.model.activation=quick_gelu",), 2, ["image_activation is gelu"]),
        ("none", ("--config.model.vocab_size=300",), 2, ["vocab_size is 260, here 300"]),
        ("none", ("--config.text.context_length=80",), 2, ["context_length is 77, here 80"]),
        ("bare", ("--config.model.vocab_size=300",), 3, ["text/token_embedding", "(260, 16)"]),
        ("bare", ("--config.model.image.depth=3",), 3, ["not in the file", "encoder.layers.2."]),
        ("lacking", (), 3, ["1 not in the file: vision_model.post_layernorm.bias"]),
        (
            "tokenizer",
            (),
            2,
            ["'bytes' is not the one of", "as '</s>' (2, here none)"],
        ),
        (
            "tokenizer",
            ("--config.text.tokenizer=clip", "--config.text.tokenizer_options.path={folder}"),
            2,
            ["tokenizer.json is not CLIP's list of merges"],
        ),
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
def test_weights_that_do_not_fit_are_refused_and_nothing_is_trained(
    start, tmp_path, damage, flags, code, words
):
    name = f"hf_{damage}"
    if damage not in ("none", "missing"):
        (start / name).mkdir(exist_ok=True)
        if damage != "bare":
            (start / name / "config.json").write_text((start / "hf/config.json").read_text())
        if damage == "tokenizer":
            write_tokenizer(start / name)
        arrays = load_file(start / "hf/model.safetensors")
        if damage == "nan":
            arrays["vision_model.post_layernorm.weight"][0] = np.nan
        if damage == "lacking":
            del arrays["vision_model.post_layernorm.bias"]
        if damage == "extra":
            arrays["head.weight"] = np.ones(2, np.float32)
        path = start / name / "model.safetensors"
        save_file(arrays, path)
        if damage == "truncated":
            path.write_bytes(path.read_bytes()[:-100])
    flags = [flag.format(folder=start / name) for flag in flags]
    done = run(start, tmp_path / "run", *flags, weights="hf" if damage == "none" else name)
    assert done.returncode == code, done.stderr
    for word in words:
        assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run/checkpoints").exists() or not list(
        (tmp_path / "run/checkpoints").iterdir()
    )


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 the rest was lost", b"no weights\n"])
def test_a_torch_file_that_was_cut_short_is_refused(start, tmp_path, content):
    (tmp_path / "half.pt").write_bytes(content)
    done = run(start, tmp_path / "run", weights=tmp_path / "half.pt")
    assert done.returncode == 3, done.stderr
    assert "half.pt" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "run").glob("checkpoints/*"))

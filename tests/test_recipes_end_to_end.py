"""The recipes on a miniature of COCO, as a user runs them: prepare, train, resume, judge, export.

The pictures are drawn scenes in JPEG files, the weights random numbers in towers of the published
kind and small width.
"""

import json
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
import tokenizers
from PIL import Image
from safetensors.numpy import save_file

from input_pipeline.sources.scenes import ScenesSource
from tests import helpers
from vlc_jax import models, weights

pytestmark = pytest.mark.slow

SMALL = {"width": 16, "heads": 2, "depth": 2}
PARTS = {"train": 40, "restval": 8, "val": 4, "test": 12}  # images
WRAPPER = """
from configs.{package} import {recipe}


def get_config(argument=None):
    config = {recipe}.get_config(argument)
    with config.unlocked():
        config.model.image, config.model.text = {image}, {text}
        for field, value in {fields}.items():
            config.update_from_flattened_dict({{field: value}})
    return config
"""
CLIP = {"image": {**SMALL, "projection": 16}, "text": {**SMALL, "projection": 16}}
SIGLIP = {"image": SMALL, "text": {**SMALL, "projection": 16}}


@pytest.fixture(scope="module")
def coco(tmp_path_factory):
    """COCO's folders, Karpathy's and COCO's own documents, NegCLIP's table."""
    folder = tmp_path_factory.mktemp("start") / "coco"
    scenes = ScenesSource(count=sum(PARTS.values()), captions=5)
    (folder / "val2014").mkdir(parents=True)
    (folder / "train2014").mkdir()
    images, lines = [], ["title\tfilepath\tneg_caption\tneg_image"]
    for split, count in PARTS.items():
        for _ in range(count):
            number = len(images)
            record = scenes[number]
            part = "train2014" if split == "train" else "val2014"
            name = f"COCO_{part}_{number:012d}.jpg"
            picture = Image.fromarray(record.image).resize((320, 240))
            picture.save(folder / part / name, quality=90)
            images.append(
                {
                    "filepath": part,
                    "filename": name,
                    "cocoid": number,
                    "split": split,
                    "sentences": [{"raw": text, "imgid": number} for text in record.captions],
                }
            )
            if split == "train":
                text = record.captions[0]
                swapped = " ".join(reversed(text.split()))
                lines.append(f"{text}\t{part}/{name}\t{[swapped]!r}\t{[(number + 1) % count]!r}")
    karpathy = {
        "dataset": "coco",
        "images": [{**image, "imgid": image["cocoid"]} for image in images],
    }
    (folder / "dataset_coco.json").write_text(json.dumps(karpathy))
    (folder / "train_neg_clip.tsv").write_text("\n".join(lines) + "\n")
    own = {
        "images": [
            {"id": i["cocoid"], "file_name": i["filename"]} for i in images[: PARTS["train"]]
        ],
        "annotations": [
            {"id": 10 * i["cocoid"] + k, "image_id": i["cocoid"], "caption": sentence["raw"]}
            for i in images[: PARTS["train"]]
            for k, sentence in enumerate(i["sentences"])
        ],
    }
    (folder / "captions_train2014.json").write_text(json.dumps(own))
    return folder


def prepare(coco, out, dataset, annotations, *options):
    done = subprocess.run(
        [
            *(sys.executable, "-m", "input_pipeline.prepare", dataset, "--annotations"),
            *(coco / annotations, "--images", coco, "--out", out, *options),
        ],
        cwd=helpers.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def write_clip(folder):
    """OpenAI's names in a file, and a vocabulary; the config's fields for them."""
    folder.mkdir()
    model = models.build("clip", "B/32", **CLIP)
    save_file(random(model, "openai", 32), folder / "ViT-B-32.safetensors")
    vocabulary = folder / "bpe_simple_vocab_16e6.txt.gz"
    sha256 = helpers.write_clip_vocabulary(vocabulary)
    arguments = f"weights={folder / 'ViT-B-32.safetensors'},tokenizer={vocabulary}"
    return arguments, {**CLIP, "fields": {"text.clip.sha256": sha256}}


def write_siglip(folder):
    """A Hugging Face folder with the words of the scenes as its tokenizer."""
    folder.mkdir()
    texts = [text for record in ScenesSource(count=64) for text in record.captions]
    words = ["</s>", "<unk>", *sorted({word for text in texts for word in text.split()})]
    table = {word: index for index, word in enumerate(words)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(table, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    fields = {"model.vocab_size": len(words)}
    model = models.build("clip", "SigLIP-L/16-256", image_size=64, vocab_size=len(words), **SIGLIP)
    save_file(random(model, "hf_siglip", 16), folder / "model.safetensors")
    text = {"vocab_size": len(words)}
    config = {"model_type": "siglip", "vision_config": {}, "text_config": text}
    (folder / "config.json").write_text(json.dumps(config))
    return f"weights={folder},size=64", {**SIGLIP, "fields": fields}


def random(model, name, patch_size):
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(lambda key: models.init(model, key), jax.random.key(0))
    params = jax.tree.map(lambda x: rng.normal(size=x.shape, scale=0.1).astype(np.float32), shapes)
    architecture = weights.Architecture(patch_size, {"image": 2, "text": 2}, may_cut_text=True)
    return weights.save(params, name, architecture)


def wrapper(folder, package, recipe, options):
    path = folder / f"{recipe}.py"
    path.write_text(WRAPPER.format(package=package, recipe=recipe, **options))
    return str(path)


RECIPES = {  # recipe -> its weights, dataset, annotations, options of prepare
    "clip_ft": (write_clip, "negclip", "train_neg_clip.tsv", ()),
    "clip_coco": (write_clip, "coco", "captions_train2014.json", ("--split", "train")),
    "siglip_ft": (write_siglip, "coco", "dataset_coco.json", ("--split", "train+restval")),
}


def train_with_a_stop(config, workdir, flags):
    """SIGTERM after two steps, then the same command to the end."""
    job = helpers.start(config, workdir, *flags)
    metrics = workdir / "metrics.jsonl"
    deadline = time.monotonic() + 240
    while not (metrics.exists() and len(metrics.read_text().splitlines()) >= 2):
        assert job.poll() is None, job.stderr.read()
        assert time.monotonic() < deadline
    job.send_signal(signal.SIGTERM)
    _, stderr = job.communicate(timeout=120)
    assert job.returncode == 75, stderr
    done = helpers.run(config, workdir, *flags)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_runs_from_published_files_to_an_exported_folder(coco, tmp_path, recipe):
    write, dataset, annotations, options = RECIPES[recipe]
    prepare(coco, tmp_path / "train", dataset, annotations, *options)
    prepare(coco, tmp_path / "test", "coco", "dataset_coco.json", "--split", "test")
    arguments, small = write(tmp_path / "weights")
    data = f"path={tmp_path / 'train'},validation={tmp_path / 'test'},batch=8"
    config = f"{wrapper(tmp_path, 'coco', recipe, small)}:{arguments},{data}"
    flags = (
        *(
            "--config.optimizer.warmup_steps=2",
            "--config.log_every=1",
            "--config.eval.batch_size=8",
        ),
        *("--config.checkpoint.every=1000", "--config.optimizer.learning_rate=1e-3"),
        *("--config.input.max_bad_share=0.1", "--config.epochs=5"),
    )

    workdir = tmp_path / "run"
    train_with_a_stop(config, workdir, flags)
    events = [row["event"] for row in helpers.rows(workdir / "events.jsonl")]
    assert {"weights", "preempted", "resume", "done"} <= set(events)
    metrics = workdir / "metrics.jsonl"
    steps = [row["step"] for row in helpers.rows(metrics)]
    count = PARTS["train"] + PARTS["restval"] * (recipe == "siglip_ft")
    assert steps == list(range(1, 5 * count // 8 + 1))
    losses = [row["train/loss"] for row in helpers.rows(metrics)]
    assert np.mean(losses[-5:]) < np.mean(losses[:5])

    trained = results(workdir, steps[-1])
    again = helpers.run(config, workdir, "--mode=eval", *flags)
    assert again.returncode == 0, again.stderr
    assert results(workdir, steps[-1]) == trained

    done = subprocess.run(
        [
            *(sys.executable, "-m", "vlc_jax.tools.export", "--workdir", workdir, "--to", "hf"),
            *("--out", tmp_path / "exported"),
        ],
        cwd=helpers.ROOT,
        env=helpers.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    zero_shot = wrapper(tmp_path, "eval", "zero_shot", small)
    family, variant, size = (
        ("siglip", "SigLIP-L/16-256", 64) if "siglip" in recipe else ("clip", "B/32", 224)
    )
    arguments = f"weights={tmp_path / 'exported'},family={family},variant={variant},size={size}"
    done = helpers.run(
        f"{zero_shot}:{arguments},path={tmp_path / 'test'}",
        tmp_path / "zero_shot",
        *("--mode=eval", "--config.eval.batch_size=8"),
    )
    assert done.returncode == 0, done.stderr
    assert results(tmp_path / "zero_shot", 0) == trained


def results(workdir, step):
    row = json.loads((workdir / f"evals/retrieval/{step}.json").read_text())
    return {name: metric["value"] for name, metric in row["metrics"].items()}

"""A miniature of COCO and weights to start from, for tests of the recipes with data=coco.

The pictures are drawn scenes in JPEG files, the weights random numbers in towers of the published
kind and small width.
"""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tokenizers
from PIL import Image
from safetensors.numpy import save_file

from tests.support import helpers
from vlc_jax import models, weights
from vlc_jax.input_pipeline.sources.scenes import ScenesSource

SMALL = {"width": 16, "heads": 2, "depth": 1}
# Of most captions every generator makes something.
CAPTIONS = {"colour": 0.9, "size": 0.3, "relation": 0.4, "single": 0.1, "place": 0.3}
PARTS = {"train": 40, "restval": 8, "val": 4, "test": 12}  # images
WRAPPER = """
from vlc_jax.configs{package} import {recipe}


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


def write_coco(folder: Path) -> Path:
    """COCO's folders, Karpathy's and COCO's own documents, NegCLIP's table."""
    scenes = ScenesSource(count=sum(PARTS.values()), captions=5, caption_options=CAPTIONS)
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


def prepare(coco: Path, out: Path, dataset: str, annotations: str, *options: str) -> None:
    done = helpers.python(
        *("-m", "vlc_jax.input_pipeline.commands.prepare", dataset, "--annotations"),
        *(coco / annotations, "--images", coco, "--out", out, *options),
    )
    assert done.returncode == 0, done.stderr


def write_clip(folder: Path) -> tuple[str, dict[str, Any]]:
    """OpenAI's names in a file, and a vocabulary; the config's fields for them."""
    folder.mkdir(parents=True)
    model = models.build("clip", "B/32", **CLIP)
    save_file(random(model, "openai", 32), folder / "ViT-B-32.safetensors")
    vocabulary = folder / "bpe_simple_vocab_16e6.txt.gz"
    sha256 = helpers.write_clip_vocabulary(vocabulary)
    arguments = f"weights={folder / 'ViT-B-32.safetensors'},tokenizer={vocabulary}"
    return arguments, {**CLIP, "fields": {"text.tokenizer_options.sha256": sha256}}


def write_siglip(folder: Path) -> tuple[str, dict[str, Any]]:
    """A Hugging Face folder with the words of the scenes as its tokenizer."""
    folder.mkdir(parents=True)
    texts = [
        text
        for record in ScenesSource(count=64, caption_options=CAPTIONS)
        for text in record.captions
    ]
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


def random(model: Any, name: str, patch_size: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(lambda key: models.init(model, key), jax.random.key(0))
    params = jax.tree.map(lambda x: rng.normal(size=x.shape, scale=0.1).astype(np.float32), shapes)
    architecture = weights.Architecture(patch_size, {"image": 2, "text": 2}, may_cut_text=True)
    return weights.save(params, name, architecture)


def wrapper(folder: Path, recipe: str, options: dict[str, Any], package: str = "") -> str:
    """A config file: the recipe (in configs or a folder of it) with the towers and fields of
    `options`."""
    path = folder / f"{recipe}.py"
    package = package and f".{package}"
    path.write_text(WRAPPER.format(package=package, recipe=recipe, **options))
    return str(path)

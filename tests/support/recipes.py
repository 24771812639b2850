"""A miniature of COCO and weights to start from, for tests of the recipes with data=coco.

The pictures are drawn scenes in JPEG files, the weights random numbers in towers of the published
kind and small width.
"""

import json
from pathlib import Path
from typing import Any

from PIL import Image
from safetensors.numpy import save_file

from tests.support import helpers, miniature, small_models
from vlc_jax import models, weights
from vlc_jax.input_pipeline.sources.scene_records import ScenesSource
from vlc_jax.setup.init_from import architecture

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

    def captions(number: int) -> list[str]:
        return scenes[number].captions

    document = miniature.karpathy("coco", PARTS, captions)
    for part in ("train2014", "val2014"):
        (folder / part).mkdir(parents=True)
    for number, image in enumerate(document["images"]):
        picture = Image.fromarray(scenes[number].image).resize((320, 240))
        picture.save(folder / image["filepath"] / image["filename"], quality=90)
    lines, train = ["title\tfilepath\tneg_caption\tneg_image"], range(PARTS["train"])
    for number in train:
        image, text = document["images"][number], captions(number)[0]
        swapped, near = [" ".join(reversed(text.split()))], [(number + 1) % len(train)]
        lines.append(f"{text}\t{image['filepath']}/{image['filename']}\t{swapped!r}\t{near!r}")
    (folder / "train_neg_clip.tsv").write_text("\n".join(lines) + "\n")
    own = miniature.coco_captions("train2014", train, captions)
    for name, content in (("dataset_coco", document), ("captions_train2014", own)):
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def prepare(coco: Path, out: Path, dataset: str, annotations: str, *options: str) -> None:
    helpers.python(
        *("-m", "vlc_jax.input_pipeline.commands.prepare", dataset, "--annotations"),
        *(coco / annotations, "--images", coco, "--out", out, *options),
        code=0,
    )


def write_clip(folder: Path) -> tuple[str, dict[str, Any]]:
    """OpenAI's names in a file, and a vocabulary; the config's fields for them."""
    folder.mkdir(parents=True)
    model = models.build("clip", "B/32", **CLIP)
    params = small_models.parameters(model, 0.1)
    arrays = weights.save(params, "openai", architecture(model))
    save_file(arrays, folder / "ViT-B-32.safetensors")
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
    small_models.write_tokenizer(folder, words, "<unk>")
    fields = {"model.vocab_size": len(words)}
    model = models.build("clip", "SigLIP-L/16-256", image_size=64, vocab_size=len(words), **SIGLIP)
    small_models.write_hugging_face(folder, model, "hf_siglip", 0.1, vocab_size=len(words))
    return f"weights={folder},size=64", {**SIGLIP, "fields": fields}


def wrapper(folder: Path, recipe: str, options: dict[str, Any], package: str = "") -> str:
    """A config file: the recipe (in configs or a folder of it) with the towers and fields of
    `options`."""
    path = folder / f"{recipe}.py"
    package = package and f".{package}"
    path.write_text(WRAPPER.format(package=package, recipe=recipe, **options))
    return str(path)

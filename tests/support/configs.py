"""The files in configs/, loaded with the arguments that they need, and shrunk for tests."""

import importlib
from pathlib import Path

import numpy as np
import tokenizers
from ml_collections import ConfigDict

from tests.support import helpers, llava_folder
from vlc_jax.input_pipeline.tokenizers import sentence_encoder
from vlc_jax.tools import embed_text

CONFIGS = sorted(
    path
    for path in (helpers.ROOT / "configs").rglob("*.py")
    if path.name != "__init__.py" and path.parent.name != "common"
)

# What configs are given beside a tokenizer file, which those of published vocabularies need.
OF_VOCABULARIES = ("coco", "llava", "eval", "pretrain")
ARGUMENTS = {
    **dict.fromkeys(  # frozen towers, which come from somewhere
        (
            *("configs/coco/dcsm.py", "configs/coco/pacl.py", "configs/coco/sparc.py"),
            *("configs/coco/labclip.py", "configs/llava/pacl.py", "configs/llava/sparc.py"),
            *("configs/coco/leftright.py", "configs/coco/siglip_ft.py", "configs/llava/clip_ft.py"),
        ),
        ",weights=ViT.pt",
    ),
    **dict.fromkeys(  # no language model
        ("configs/coco/dac.py", "configs/coco/svlc.py", "configs/coco/svlc_pos.py"),
        ",negatives=rule,weights=ViT.pt",
    ),
    **dict.fromkeys(("configs/llava/stage1.py", "configs/llava/stage2.py"), ",weights=CLIP"),
    "configs/llava/vlm2vec.py": ",weights=llava",
    "configs/eval/all.py": ",sets=scenes+sugarcrepe,root=sets",
    "configs/eval/llava.py": ",sets=whatsup_a_two_way+mmvp+winoground,root=sets",
    "configs/coco/negclip.py": ",hard_images=0",  # of which a table has none
}
OF_VECTORS = ("configs/llava/llm2vec.py",)  # beside a tokenizer, which they do not read
SMALL = {"width": 16, "heads": 2, "depth": 1}


def load(path: Path, folder: Path, more: str = "") -> ConfigDict:
    tokenizer = folder / "tokenizer.json"
    words = {"</s>": 0, "<pad>": 1, "picture": 2, "number": 3, "<unk>": 4}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="picture"))
    made.save(str(tokenizer))
    name = ".".join(path.relative_to(helpers.ROOT).with_suffix("").parts)
    get_config = importlib.import_module(name).get_config
    if path.stem == "text_vectors":
        return get_config(f"vectors={write_vectors(folder / 'any.npy', ['a text'])}")
    if path.parent.name not in OF_VOCABULARIES:
        return get_config()
    if identifier(path) == "configs/eval/llava.py":
        llava_folder.write_config(folder)
        more += f",path={folder}"
    if identifier(path) in OF_VECTORS:
        more += f",weights=ViT.pt,vectors={write_vectors(folder / 'any.npy', ['a text'])}"
    config = get_config(f"tokenizer={tokenizer}{ARGUMENTS.get(identifier(path), '')}{more}")
    if config.text.tokenizer == "clip":
        config.text.clip.path = str(folder / "clip.txt.gz")
        config.text.clip.sha256 = helpers.write_clip_vocabulary(folder / "clip.txt.gz")
    return config


def write_vectors(path: Path, texts: list[str]) -> Path:
    """Random vectors of texts."""
    rng = np.random.default_rng(0)
    sentence_encoder.write(
        path, texts, lambda part: rng.normal(size=(len(part), 24)), identity="random"
    )
    return path


def shrink(config: ConfigDict, folder: Path) -> ConfigDict:
    """Two steps of sixteen pairs, the first case of everything."""
    with config.unlocked():
        config.steps, config.epochs, config.examples = 2, None, None
        config.batch_size = 16
        config.eval.batch_size = 16
        config.optimizer.warmup_steps = 1
        config.input.scenes.count = 32
        config.input.preview = 4
        for options in config.evals.values():
            options.count = 8
        if config.input.source == "records":
            names = helpers.write_photos(folder / "photos", 24)
            config.input.records.path = str(helpers.write_jsonl(folder, names))
            config.input.records.image_folder = str(folder / "photos")
        if config.model.variant != "mini":
            config.input.image_size = 64
            config.model.image, config.model.text = dict(SMALL), {**SMALL, "projection": 16}
            if not config.model.variant.startswith("SigLIP"):
                config.model.image.projection = 16
        else:
            config.model.image = {**SMALL, "stem": (4, 8, 16)}
            if config.text.tokenizer == "vectors":
                texts = embed_text.texts_of(config)
                config.text.vectors.path = str(write_vectors(folder / "all.npy", texts))
            else:
                config.model.text = dict(SMALL)
    return config


def identifier(path: Path) -> str:
    return str(path.relative_to(helpers.ROOT))

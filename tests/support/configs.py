"""The files in configs/, loaded with the arguments that they need, and shrunk for tests."""

import importlib
import re
from pathlib import Path

import numpy as np
import tokenizers
from ml_collections import ConfigDict

from tests.support import helpers, llava_folder
from vlc_jax.input_pipeline.commands import vector_file
from vlc_jax.tools import embed_text

CONFIGS = sorted(
    path
    for path in (helpers.ROOT / "configs").rglob("*.py")
    # finetune's model is that of its weights (test_finetune.py)
    if path.name not in ("__init__.py", "finetune.py") and "common" not in path.parts
)


def commands(path: str) -> list[str]:
    """What follows --config in the commands on top of a config."""
    text = (helpers.ROOT / path).read_text().replace("\\\\\n", " ")
    return re.findall(r"--config\s+(\S+)", text)


# Configs with their data: each method on the scenes, on COCO and, where it can, on LLaVA's files.
CASES = [str(path.relative_to(helpers.ROOT)) for path in CONFIGS]
CASES += [
    f"{case}:data={data}"
    for case in CASES
    for data in ("coco", "llava")
    if any(command.startswith(f"{case}:data={data},") for command in commands(case))
]
# Arguments of configs beside a tokenizer file, which published vocabularies need.
PUBLISHED = re.compile("configs/(llava|eval|pretrain)/|configs/(clip_coco|siglip_ft)|.*:data=")
ARGUMENTS = {
    # frozen towers
    **dict.fromkeys((case for case in CASES if ":data=" in case), ",weights=ViT.pt"),
    **dict.fromkeys(("configs/siglip_ft.py", "configs/llava/clip_ft.py"), ",weights=ViT.pt"),
    **dict.fromkeys(  # no language model
        ["configs/dac.py:data=coco", "configs/svlc.py:data=coco", "configs/svlc_pos.py:data=coco"],
        ",negatives=rule,weights=ViT.pt",
    ),
    **dict.fromkeys(("configs/llava/stage1.py", "configs/llava/stage2.py"), ",weights=CLIP"),
    "configs/llava/vlm2vec.py": ",weights=llava",
    "configs/eval/all.py": ",sets=scenes+sugarcrepe,root=sets,negation=1.9",
    "configs/eval/llava.py": ",sets=whatsup_a_two_way+mmvp+winoground,root=sets",
    "configs/negclip.py:data=coco": ",weights=ViT.pt,hard_images=0",  # a table has none
}
OF_VECTORS = ("configs/llava/llm2vec.py",)  # beside a tokenizer, which they do not read
SMALL = {"width": 16, "heads": 2, "depth": 1}


def load(case: str, folder: Path, more: str = "") -> ConfigDict:
    """The config of one of CASES; more: further arguments of a config of published weights."""
    tokenizer = folder / "tokenizer.json"
    words = {"</s>": 0, "<pad>": 1, "picture": 2, "number": 3, "<unk>": 4}
    words |= {"[SEP]": 5, "[PAD]": 6} if "xvlm" in case else {}  # of BERT
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="picture"))
    made.save(str(tokenizer))
    path, _, data = case.partition(":")
    get_config = importlib.import_module(
        f"vlc_jax.{path.removesuffix('.py').replace('/', '.')}"
    ).get_config
    if case == "configs/scenes/text_vectors.py":
        return get_config(f"vectors={write_vectors(folder / 'any.npy', ['a text'])}")
    if not PUBLISHED.match(case):
        return get_config()
    if case == "configs/eval/llava.py":
        llava_folder.write_config(folder)
        more += f",path={folder}"
    if case in OF_VECTORS:
        more += f",weights=ViT.pt,vectors={write_vectors(folder / 'any.npy', ['a text'])}"
    config = get_config(f"{data},tokenizer={tokenizer}{ARGUMENTS.get(case, '')}{more}")
    if config.text.tokenizer == "clip":
        path = folder / "clip.txt.gz"
        sha256 = helpers.write_clip_vocabulary(path)
        config.text.tokenizer_options = {"path": str(path), "sha256": sha256}
    return config


def write_vectors(path: Path, texts: list[str]) -> Path:
    """Random vectors of texts."""
    rng = np.random.default_rng(0)
    vector_file.write(path, texts, lambda part: rng.normal(size=(len(part), 24)), identity="random")
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
        if "depth" in config.model.head:
            config.model.head.depth = 1
        if "encoder" in config.model.head:
            config.model.head.encoder.depth = 2  # a layer of texts, one of pairs
        if config.input.source == "records":
            names = helpers.write_photos(folder / "photos", 24)
            files = {"path": str(helpers.write_jsonl(folder, names))}
            config.input.source_options.update(files, image_folder=str(folder / "photos"))
        if config.model.variant != "mini":
            config.input.image_size = 64
            config.model.image, config.model.text = dict(SMALL), {**SMALL, "projection": 16}
            if not config.model.variant.startswith("SigLIP"):
                config.model.image.projection = 16
        else:
            config.model.image = {**SMALL, "stem": (4, 8, 16)}
            if config.text.tokenizer == "vectors":
                texts = embed_text.texts_of(config)
                path = write_vectors(folder / "all.npy", texts)
                config.text.tokenizer_options = {"path": str(path)}
            else:
                config.model.text = dict(SMALL)
    return config


def config_of(name: str, *argument: str) -> ConfigDict:
    """The config of a name such as "llava/dcsm"."""
    return importlib.import_module(f"vlc_jax.configs.{name}").get_config(*argument)


def coco(name: str, argument: str = "") -> ConfigDict:
    """The recipe of a name on COCO."""
    return config_of(name, f"data=coco,{argument}")

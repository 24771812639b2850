"""SPEC's files."""

from pathlib import Path

from tests.support.sets.files import picture, write_json
from vlc_jax.input_pipeline.benchmarks.spec import SUBSETS

WORDS = ("left", "right", "top")


def write(root: Path) -> None:
    for subset in SUBSETS:
        folder = root / "spec" / subset
        names = [f"cup_7/{word}.jpg" for word in WORDS]
        texts = [f"{subset}: a cup is on the {word}." for word in WORDS]
        for name in names:
            picture(folder / name)
        to_text = [{"query": name, "keys": texts, "label": n} for n, name in enumerate(names)]
        to_image = [{"query": text, "keys": names, "label": n} for n, text in enumerate(texts)]
        write_json(folder / "image2text.json", to_text)
        write_json(folder / "text2image.json", to_image)

"""Time of VQAScore with a LLaVA: ours against a plain loop over transformers.

  python speed/mllm.py --torch-python .venv-parity/bin/python
  python speed/mllm.py --torch-python .venv-parity/bin/python --pairs 256 --rounds 2

transformers writes a LLaVA with random weights: 256 tokens per image of 224 pixels, a language
model of 6 layers of width 384, 32,000 tokens; four captions of about 10 words per image. Ours is
the evaluation of a benchmark for each round (speed/evaluation.py), which encodes an image once and
shares its keys and values between its captions. The plain loop (speed/torch_mllm.py) runs batches
of --batch-size pairs, each with its image, prompt and answer.

Each side is a separate process with the same threads; they alternate by round. Prints wall and CPU
seconds of both sides, their ratios, our compile time, and the largest difference of a score.
"""

import json
import random
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, from any folder

from speed import evaluation, harness

CAPTIONS = 4  # per image
COLOURS = ("red", "blue", "green", "black", "white", "yellow", "brown", "grey")
THINGS = ("dog", "cat", "horse", "bus", "kite", "boat", "child", "table", "lamp", "bird")
PLACES = ("to the left of", "to the right of", "behind", "in front of", "under", "next to")


def main(
    pairs: int = 1000, batch_size: int = 8, torch_python: str = sys.executable, rounds: int = 5
) -> None:
    images = pairs // (CAPTIONS * rounds)
    print(f"{images * rounds * CAPTIONS:,} pairs of {images * rounds:,} images")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        numbers = range(1, rounds + 1)
        cases = {f"round {number}": write_cases(folder, number, images) for number in numbers}
        (folder / "cases.json").write_text(json.dumps(cases))
        evaluation.compare("torch_mllm.py", torch_python, folder, batch_size)


def write_cases(folder: Path, number: int, images: int) -> list[dict]:
    """Writes smooth images, 320 x 240; returns their names with four captions each."""
    rng, words = np.random.default_rng(number), random.Random(number)
    cases = []
    for index in range(images):
        name = f"{number}_{index}.jpg"
        harness.photo(rng, 320, 240, noise=0).save(folder / name, quality=90)
        captions = []
        for _ in range(CAPTIONS):
            (a, b), (x, y) = words.sample(THINGS, 2), words.sample(COLOURS, 2)
            captions.append(f"a {x} {a} {words.choice(PLACES)} the {y} {b}")
        cases.append({"image": name, "captions": captions})
    return cases


if __name__ == "__main__":
    harness.command(main)

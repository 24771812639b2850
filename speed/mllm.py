"""Time of VQAScore with a LLaVA: ours against a plain loop over transformers.

  python speed/mllm.py --torch-python .venv-parity/bin/python
  python speed/mllm.py --torch-python .venv-parity/bin/python --pairs 256 --rounds 2

transformers writes a LLaVA with random weights: 256 tokens per image of 224 pixels, a language
model of 6 layers of width 384, 32,000 tokens; four captions of about 10 words per image. Ours is
`vlc_jax.load(FOLDER)` and the evaluation of a benchmark, which encodes an image once and shares its
keys and values between its captions. The plain loop (speed/torch_mllm.py) runs batches of
--batch-size pairs, each with its image, prompt and answer.

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

from speed import harness
from vlc_jax.input_pipeline.benchmarks import Benchmark, Case

CAPTIONS = 4  # per image
COLOURS = ("red", "blue", "green", "black", "white", "yellow", "brown", "grey")
THINGS = ("dog", "cat", "horse", "bus", "kite", "boat", "child", "table", "lamp", "bird")
PLACES = ("to the left of", "to the right of", "behind", "in front of", "under", "next to")


def main(
    pairs: int = 1000, batch_size: int = 8, torch_python: str = sys.executable, rounds: int = 5
) -> None:
    images = pairs // (CAPTIONS * rounds)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases = [write_cases(folder, number, images) for number in range(rounds)]
        (folder / "cases.json").write_text(json.dumps(cases))
        # torch comes first: it writes the model that ours reads
        torch = harness.Worker(
            "torch", torch_python, "torch_mllm.py", folder=folder, batch_size=batch_size
        )
        environment = {"JAX_PLATFORMS": "cpu"}
        ours = harness.Worker("ours", sys.executable, "mllm.py", environment, folder=folder)
        print(f"{torch.facts['parameters']:,} parameters")
        print(f"{images * rounds * CAPTIONS:,} pairs of {images * rounds:,} images")
        questions = {f"round {number + 1}": str(number) for number in range(rounds)}
        difference = harness.compare_scores({"torch": torch, "ours": ours}, questions)
        print(f"ours: compiled in {ours.facts['compile']:.1f} s before")
        print(f"largest difference of a score: {difference:.1e}")


def write_cases(folder: Path, number: int, images: int) -> list[dict]:
    """Writes smooth images, 320 x 240; returns their names with four captions each."""
    rng, words = np.random.default_rng(number), random.Random(number)
    cases = []
    for index in range(images):
        name = f"{number}_{index}.jpg"
        harness.photo(rng, 320, 240, noise=0).save(folder / name, quality=90)
        captions = [caption(words) for _ in range(CAPTIONS)]
        cases.append({"image": name, "captions": captions})
    return cases


def caption(words: random.Random) -> str:
    (a, b), (x, y) = words.sample(THINGS, 2), words.sample(COLOURS, 2)
    return f"a {x} {a} {words.choice(PLACES)} the {y} {b}"


def build(folder: str) -> tuple[dict, harness.Ask]:
    """Facts of our side, and a function that scores the pairs of a round."""
    from vlc_jax import evaluators
    from vlc_jax.encode.encoder import Encoder
    from vlc_jax.setup import init_from, resolve
    from vlc_jax.setup.weights_config import config_of_weights

    folder = Path(folder)
    setup = resolve(config_of_weights(folder / "llava"), "weights")
    variables = {"params": init_from.load_complete(setup), "batch_stats": {}}
    rounds = json.loads((folder / "cases.json").read_text())

    def evaluate(cases: list[Case]) -> list[float]:
        result = evaluators.evaluate("choice", Benchmark("speed", cases, "1"), scorer)
        return [score for row in result.per_example for score in row["scores"]]

    # an image of the same size and captions of the same length: compiles every shape
    warm = [Case("0", (np.zeros((240, 320, 3), np.uint8),), tuple(rounds[0][0]["captions"]))]
    scorer = Encoder(setup, once=True).scorer(variables)
    _, compiling = harness.timed(lambda: evaluate(warm))

    def ask(number: str) -> dict:
        cases = [
            Case(str(n), (folder / row["image"],), tuple(row["captions"]))
            for n, row in enumerate(rounds[int(number)])
        ]
        scores, seconds = harness.timed(lambda: evaluate(cases))
        return {**seconds, "scores": scores}

    return {"compile": compiling["s"]}, ask


if __name__ == "__main__":
    harness.command(main, build)

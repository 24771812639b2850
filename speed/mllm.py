"""Time of VQAScore with a LLaVA: ours against a plain loop over transformers.

  python speed/mllm.py --torch-python .venv-parity/bin/python
  python speed/mllm.py --torch-python .venv-parity/bin/python --pairs 256 --rounds 2

transformers writes a LLaVA with random weights: 256 tokens per image of 224 pixels, a language
model of 6 layers of width 384, 32,000 tokens; four captions of about 10 words per image. Ours is
`vlc_jax.load(FOLDER)` and the evaluation of a benchmark, which encodes an image once and shares its
keys and values between its captions. The plain loop (speed/torch_mllm.py) runs batches of 8 pairs,
each with its image, prompt and answer.

Each side is a separate process with the same threads; they alternate by round. Prints wall and CPU
seconds of both sides, their ratios, our compile time, and the largest difference of a score.
"""

import argparse
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


def main() -> None:
    parser = harness.parser(__doc__, rounds=5, has_workers=True)
    parser.add_argument("--pairs", type=int, default=1000, help="image-caption pairs of all rounds")
    parser.add_argument("--batch-size", type=int, default=8, help="batch size of the plain loop")
    args = parser.parse_args()
    if args.worker:
        harness.serve(build, Path(args.worker[0]))
        return
    with tempfile.TemporaryDirectory() as folder:
        compare(args, Path(folder))


def compare(args: argparse.Namespace, folder: Path) -> None:
    """Runs both sides and prints their times."""
    images = args.pairs // (CAPTIONS * args.rounds)
    rounds = [write_cases(folder, number, images) for number in range(args.rounds)]
    (folder / "cases.json").write_text(json.dumps(rounds))
    # torch comes first: it writes the model that ours reads
    loop = (args.torch_python, "torch_mllm.py", folder, args.batch_size)
    torch = harness.Worker("torch", *loop)
    ours = harness.Worker(
        "ours", sys.executable, "mllm.py", "--worker", folder, JAX_PLATFORMS="cpu"
    )
    harness.print_machine(torch.facts["versions"], ours.facts["versions"])
    print(f"{torch.facts['parameters']:,} parameters")
    print(f"{images * args.rounds * CAPTIONS:,} pairs of {images * args.rounds:,} images")
    questions = {f"round {number + 1}": str(number) for number in range(args.rounds)}
    difference = harness.compare_scores({"torch": torch, "ours": ours}, questions, 8)
    print(f"ours: compiled in {ours.facts['compile']:.1f} s before")
    print(f"largest difference of a score: {difference:.1e}")
    torch.close()
    ours.close()


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


def build(folder: Path) -> tuple[dict, harness.Ask]:
    """Facts of our side, and a function that scores the pairs of a round."""
    import flax
    import jax

    from vlc_jax import evaluators
    from vlc_jax.encode.encoder import Encoder
    from vlc_jax.setup import init_from, resolve
    from vlc_jax.setup.weights_config import config_of_weights

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

    versions = f"jax {jax.__version__}, flax {flax.__version__}"
    return {"compile": compiling["s"], "versions": versions}, ask


if __name__ == "__main__":
    main()

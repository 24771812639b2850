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
import os
import platform
import random
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, from any folder

from speed.worker import Worker  # noqa: E402
from vlc_jax.input_pipeline.benchmarks import Benchmark, Case  # noqa: E402

CAPTIONS = 4  # per image
COLOURS = ("red", "blue", "green", "black", "white", "yellow", "brown", "grey")
THINGS = ("dog", "cat", "horse", "bus", "kite", "boat", "child", "table", "lamp", "bird")
PLACES = ("to the left of", "to the right of", "behind", "in front of", "under", "next to")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=1000, help="image-caption pairs")
    parser.add_argument(
        "--rounds", type=int, default=5, help="rounds over which the pairs are split"
    )
    parser.add_argument("--batch-size", type=int, default=8, help="batch size of the plain loop")
    parser.add_argument("--torch-python", default=sys.executable)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(Path(args.worker))
        return
    with tempfile.TemporaryDirectory() as folder:
        compare(args, Path(folder))


def compare(args: argparse.Namespace, folder: Path) -> None:
    """Runs both sides and prints their times."""
    images = args.pairs // (CAPTIONS * args.rounds)
    rounds = [write_cases(folder, number, images) for number in range(args.rounds)]
    (folder / "cases.json").write_text(json.dumps(rounds))
    loop = ROOT / "speed/torch_mllm.py"
    sides = {"torch": Worker("torch", (args.torch_python, loop, folder, str(args.batch_size)))}
    ours = (sys.executable, __file__, "--worker", str(folder))
    sides["ours"] = Worker("ours", ours, JAX_PLATFORMS="cpu")
    facts = {name: worker.facts for name, worker in sides.items()}
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    print(f"{platform.machine()}, {cores} cores, load {load:.1f}")
    print(f"{facts['torch']['versions']}; {facts['ours']['versions']}")
    print(f"{facts['torch']['parameters']:,} parameters")
    print(f"{images * args.rounds * CAPTIONS:,} pairs of {images * args.rounds:,} images")
    print(f"{'':8}{'ours s':>9}{'torch s':>9}{'ratio':>7}{'CPU s':>9}{'CPU s':>9}{'ratio':>7}")
    total, difference = dict.fromkeys(sides, np.zeros(2)), 0.0
    for number in range(args.rounds):
        answers = {name: worker.ask(str(number)) for name, worker in sides.items()}
        times = {name: np.array([a["s"], a["cpu"]]) for name, a in answers.items()}
        total = {name: total[name] + times[name] for name in total}
        scores = [np.array(answers[name]["scores"]) for name in ("ours", "torch")]
        difference = max(difference, float(np.abs(scores[0] - scores[1]).max()))
        print_line(f"round {number + 1}", times)
    print_line("all", total)
    print(f"ours: compiled in {facts['ours']['compile']:.1f} s before")
    print(f"largest difference of a score: {difference:.1e}")
    for worker in sides.values():
        worker.close()


def print_line(name: str, times: dict[str, np.ndarray]) -> None:
    """Prints wall and CPU seconds of both sides, and ratios to ours."""
    pairs = zip(times["ours"], times["torch"], strict=True)
    columns = (f"{a:9.1f}{b:9.1f}{b / a:6.1f}x" for a, b in pairs)
    print(f"{name:8}{''.join(columns)}", flush=True)


def write_cases(folder: Path, number: int, images: int) -> list[dict]:
    """Writes noise images, 320 x 240; returns their names with four captions each."""
    rng, words = np.random.default_rng(number), random.Random(number)
    cases = []
    for index in range(images):
        name = f"{number}_{index}.jpg"
        coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8))
        coarse.resize((320, 240), Image.Resampling.BICUBIC).save(folder / name, quality=90)
        captions = [caption(words) for _ in range(CAPTIONS)]
        cases.append({"image": name, "captions": captions})
    return cases


def caption(words: random.Random) -> str:
    (a, b), (x, y) = words.sample(THINGS, 2), words.sample(COLOURS, 2)
    return f"a {x} {a} {words.choice(PLACES)} the {y} {b}"


def work(folder: Path) -> None:
    """Our side: answers each line of stdin, a round's number, with a line of JSON."""
    answers, sys.stdout = sys.stdout, sys.stderr
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

    start = time.perf_counter()
    scorer = Encoder(setup, once=True).scorer(variables)
    evaluate([Case("0", (np.zeros((240, 320, 3), np.uint8),), tuple(rounds[0][0]["captions"]))])
    facts = {"compile": time.perf_counter() - start}
    facts["versions"] = f"jax {jax.__version__}, flax {flax.__version__}"
    print(json.dumps(facts), file=answers, flush=True)

    for line in sys.stdin:
        rows = rounds[int(line)]
        cases = [
            Case(str(n), (folder / row["image"],), tuple(row["captions"]))
            for n, row in enumerate(rows)
        ]
        before = time.perf_counter(), time.process_time()
        scores = evaluate(cases)
        after = time.perf_counter(), time.process_time()
        answer = {"s": after[0] - before[0], "cpu": after[1] - before[1], "scores": scores}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()

"""Time of an evaluation: ours against a plain loop in torch, on several benchmarks.

  python speed/evaluation.py --torch-python .venv-parity/bin/python
  python speed/evaluation.py --torch-python .venv-parity/bin/python --cases 1000 --images 100

Both sides evaluate the same ViT-B/32 with random weights of open_clip on four benchmarks over the
same images (640x480 JPEG files with five captions each, as in COCO): a word replaced, two words
swapped (two captions per case), five word orders, and retrieval. The plain loop
(speed/torch_evaluation.py) is like CLIP_benchmark's and most authors': a DataLoader, batches of
cases, every image of a case decoded and encoded, every caption encoded at 77 tokens.

Each side is a separate process; they alternate by benchmark. Prints wall and CPU seconds of all
processes of a side and their ratios, our compile time, and the largest difference of a score.
"""

import json
import random
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, from any folder

from speed import harness
from vlc_jax import evaluators
from vlc_jax.encode.encoder import Encoder
from vlc_jax.input_pipeline.benchmarks import Benchmark, Case
from vlc_jax.setup import init_from, resolve
from vlc_jax.setup.weights_config import config_of_weights

SHARES = {"replace": 0.4, "swap": 0.3, "order": 0.2, "retrieval": 0.1}  # of the cases
CAPTIONS = 5  # per image
WORDS = (
    "small", "large", "red", "wooden", "wet", "old", "striped", "green", "broken", "bright", "dog",
    "cat", "horse", "bus", "kite", "boat", "child", "table", "lamp", "bird", "left", "right",
)  # fmt: skip


def main(
    cases: int = 10_000,
    images: int = 1000,
    batch_size: int = 64,
    workers: int = 2,
    torch_python: str = sys.executable,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = write_data(Path(folder), cases, images)
        texts = [text for each in rows.values() for row in each for text in row["captions"]]
        print(
            f"{sum(map(len, rows.values())):,} cases with {images:,} images, {len(texts):,} "
            f"captions, {len(set(texts)):,} different ones"
        )
        # torch comes first: it writes the weights that ours reads
        torch = harness.Worker(
            "torch", torch_python, "torch_evaluation.py",
            folder=folder, batch_size=batch_size, workers=workers,
        )  # fmt: skip
        ours = harness.Worker(
            "ours", sys.executable, "evaluation.py", {"JAX_PLATFORMS": "cpu"},
            folder=folder, weights=torch.facts["weights"],
        )  # fmt: skip
        differences = [0.0]
        for name in rows:
            scores = list[np.ndarray]()

            def side(worker: harness.Worker, name: str = name, scores: list = scores) -> dict:
                answer = worker.ask(name)
                scores.append(np.array(answer.pop("scores")))
                return answer

            sides = {worker.name: partial(side, worker) for worker in (ours, torch)}
            harness.compare(name, sides, 1, "ours", warm_up=0)
            differences.append(float(np.abs(scores[0] - scores[1]).max()))
        print(f"largest difference of a score: {max(differences):.1e}")
        print(f"ours: compiled in {ours.facts['compile']:.1f} s before")


def write_data(folder: Path, count: int, images: int) -> dict[str, list[dict]]:
    """Writes images and cases.json: benchmark -> [{image: name, captions: correct one first}]."""
    rng = np.random.default_rng(0)
    for number in range(images):
        harness.photo(rng, 640, 480).save(folder / f"{number}.jpg", quality=90)
    words = random.Random(0)
    captions = [[words.sample(WORDS, 12) for _ in range(CAPTIONS)] for _ in range(images)]
    cases: dict[str, list[dict]] = {}
    for name, share in SHARES.items():
        number = min(round(share * count), images if name == "retrieval" else count)
        rows = ((i % images, captions[i % images][i // images % CAPTIONS]) for i in range(number))
        cases[name] = [
            {"image": f"{image}.jpg", "captions": [" ".join(x) for x in options(name, text, words)]}
            for image, text in rows
        ]
    (folder / "cases.json").write_text(json.dumps(cases))
    return cases


def options(name: str, text: list[str], words: random.Random) -> list[list[str]]:
    """The captions of a case of a benchmark, the correct one first."""
    first, second, *others = text
    wrong = {
        "replace": [[words.choice(WORDS), second, *others]],
        "swap": [[second, first, *others]],
        "order": [words.sample(text, len(text)) for _ in range(4)],
        "retrieval": [],
    }
    return [text, *wrong[name]]


def build(folder: str, weights: dict) -> tuple[dict, harness.Ask]:
    """Facts of our side, and a function that evaluates a benchmark by name."""
    setup = resolve(config_of_weights(**weights), "weights")
    variables = {"params": init_from.load_complete(setup), "batch_stats": {}}
    rows = json.loads(Path(folder, "cases.json").read_text())
    # one encoder for all benchmarks: it encodes what they share once
    encoder = Encoder(setup, once=True)
    scorer = encoder.scorer(variables)
    _, compiling = harness.timed(lambda: warm_up(scorer, rows))

    def evaluate(name: str) -> list[float]:
        cases = [
            Case(str(n), (Path(folder, row["image"]),), tuple(row["captions"]))
            for n, row in enumerate(rows[name])
        ]
        benchmark, is_choice = Benchmark(name, cases, "1"), name != "retrieval"
        encoder.prepare(variables, benchmark)
        result = evaluators.evaluate("choice" if is_choice else "retrieval", benchmark, scorer)
        return [
            float(x) for r in result.per_example for x in r["scores"][: None if is_choice else 1]
        ]

    def ask(name: str) -> dict:
        scores, seconds = harness.timed(lambda: evaluate(name))
        return {**seconds, "scores": scores}

    return {"compile": compiling["s"]}, ask


def warm_up(scorer: evaluators.Scorer, rows: dict[str, list[dict]]) -> None:
    """Compiles every shape, with an image that is in no benchmark."""
    image = np.zeros((240, 320, 3), np.uint8)
    for name, (first, *_) in rows.items():
        if name == "retrieval":
            texts = scorer.embed_texts([" ".join(["bird"] * count) for count in (1, 20, 40, 60)])
            scorer.score(scorer.embed_images([image]), texts)
        else:
            warm = Benchmark("warm", [Case("0", (image,), tuple(first["captions"]))], "1")
            evaluators.evaluate("choice", warm, scorer)


if __name__ == "__main__":
    harness.command(main, build)

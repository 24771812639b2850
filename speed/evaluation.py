"""Time of an evaluation: ours against a plain loop in torch, on several benchmarks.

  python speed/evaluation.py --torch-python .venv-parity/bin/python
  python speed/evaluation.py --torch-python .venv-parity/bin/python --cases 1000 --images 100

Both sides evaluate the same ViT-B/32 with random weights of open_clip on four benchmarks over the
same images (640x480 JPEG files with five captions each, as in COCO): a word replaced, two words
swapped (two captions per case), five word orders, and retrieval. The plain loop
(speed/torch_evaluation.py) is like CLIP_benchmark's and most authors': a DataLoader, batches of
cases, every image of a case decoded and encoded, every caption encoded at 77 tokens.

Each side is a separate process; they alternate by benchmark. Prints wall and CPU seconds of all
processes of a side and their ratios, our compile time, the seconds of a second evaluation from the
cache, and the largest difference of a score. Then it estimates the time of the core suite (17 sets)
on one H200 from counts, the measured rates of decoding and tokenization, and an assumed rate of the
GPU.
"""

import argparse
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
from flax import linen as nn
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, from any folder

from speed.worker import Worker  # noqa: E402
from vlc_jax import evaluators, models  # noqa: E402
from vlc_jax.devices import chips  # noqa: E402
from vlc_jax.encode.encoder import Encoder, short_lengths, text_lengths  # noqa: E402
from vlc_jax.input_pipeline.benchmarks import Benchmark, Case  # noqa: E402
from vlc_jax.setup import init_from, resolve  # noqa: E402
from vlc_jax.setup.weights_config import config_of_weights  # noqa: E402
from vlc_jax.train import flops  # noqa: E402
from vlc_jax.types.setup import Setup  # noqa: E402

SHARES = {"replace": 0.4, "swap": 0.3, "order": 0.2, "retrieval": 0.1}  # of the cases
CAPTIONS = 5  # per image
THINGS = ("dog", "cat", "horse", "bus", "kite", "boat", "child", "table", "lamp", "bird", "bottle")
LOOKS = ("small", "large", "red", "wooden", "wet", "old", "striped", "green", "broken", "bright")
PLACES = ("left of", "right of", "behind", "in front of", "on top of", "next to", "below")
SCENES = ("in the park", "on a street", "in a kitchen", "near the sea", "at night", "in the snow")

# The core suite: ARO, REPLACE, SWAP, What'sUp, COCO- and GQA-spatial, SugarCrepe, SugarCrepe++,
# Winoground, MMVP, BiVLC, ColorSwap, retrieval on COCO and Flickr30k; distinct images and texts.
SUITE = {"images": 87_000, "texts": 439_000}
CORES = 16  # of a machine with one H200
UTILISATION = 0.35  # share of the GPU's peak, assumed
GOALS = {"B/32": 60, "L/14": 180}  # seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=64, help="batch size of the plain loop")
    parser.add_argument(
        "--workers", type=int, default=2, help="workers of the plain loop's DataLoader"
    )
    parser.add_argument("--torch-python", default=sys.executable)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(Path(args.worker))
        return
    with tempfile.TemporaryDirectory() as folder:
        compare(args, Path(folder))


def compare(args: argparse.Namespace, folder: Path) -> None:
    """Runs both sides, prints their times and the estimate."""
    cases = write_data(folder, args.cases, args.images)
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    print(f"{platform.machine()}, {cores} cores, load {load:.1f}")
    texts = {text for rows in cases.values() for row in rows for text in row["captions"]}
    queries = sum(len(row["captions"]) for rows in cases.values() for row in rows)
    count = sum(map(len, cases.values()))
    print(f"{count:,} cases with {args.images:,} images, ", end="")
    print(f"{queries:,} captions, {len(texts):,} different ones")
    loop = ROOT / "speed/torch_evaluation.py"
    options = (str(folder), str(args.batch_size), str(args.workers))
    sides = {"torch": Worker("torch", (args.torch_python, loop, *options))}  # writes the weights
    folder.joinpath("vocabulary").write_text(sides["torch"].facts["vocabulary"])
    ours = (sys.executable, __file__, "--worker", str(folder))
    sides["ours"] = Worker("ours", ours, JAX_PLATFORMS="cpu")
    print(f"{'':12}{'ours s':>9}{'torch s':>9}{'ratio':>7}{'CPU s':>9}{'CPU s':>9}{'ratio':>7}")
    total, difference = dict.fromkeys(("ours", "torch"), np.zeros(2)), 0.0
    for name in cases:
        answers = {side: worker.ask(name) for side, worker in sides.items()}
        times = {side: np.array([a["s"], a["cpu"]]) for side, a in answers.items()}
        total = {side: total[side] + times[side] for side in total}
        scores = [np.load(answers[side]["scores"]) for side in ("ours", "torch")]
        difference = max(difference, float(np.abs(scores[0] - scores[1]).max()))
        print_line(name, times)
    print_line("all", total)
    again, known = sides["ours"].ask("again"), sides["ours"].ask("known")
    print(f"ours: compiled in {sides['ours'].facts['compile']:.1f} s before")
    print(f"ours a second time, from the cache: {again['s']:.1f} s")
    print(f"largest difference of a score: {difference:.1e}")
    for worker in sides.values():
        worker.close()
    predict(sides["ours"].facts, known["cpu"] / (count + queries))


def print_line(name: str, times: dict[str, np.ndarray]) -> None:
    """Prints wall and CPU seconds of both sides, and ratios to ours."""
    pairs = zip(times["ours"], times["torch"], strict=True)
    columns = (f"{a:9.1f}{b:9.1f}{b / a:6.1f}x" for a, b in pairs)
    print(f"{name:12}{''.join(columns)}", flush=True)


def predict(facts: dict, row_seconds: float) -> None:
    """Prints the estimated time of the core suite on one H200.

    row_seconds: seconds per requested image or text, without decoding, tokenization and towers.
    """
    rate = UTILISATION * chips.CHIPS["NVIDIA H200"].flops
    images, texts = SUITE["images"], SUITE["texts"]
    decode = images / facts["decode"] / CORES
    tokenize = texts / facts["tokenize"]  # tokenization runs on one thread
    rest = row_seconds * (images + texts)  # a lower bound: some rows are requested more than once
    print(f"measured here: {facts['decode']:.0f} images/s and core decoded, ", end="")
    print(f"{facts['tokenize']:,.0f} texts/s tokenized, {1e6 * row_seconds:.0f} us per row scored")
    print(f"core suite, {images:,} images and {texts:,} texts, on one H200 with {CORES} cores:")
    for variant, goal in GOALS.items():
        net = models.build("clip", variant)
        image = images * tower_flops(net, "image") / rate
        lengths = facts["lengths"]
        text = {
            "cut": sum(n * tower_flops(net, "text", int(k)) for k, n in lengths.items()),
            "full": sum(lengths.values()) * tower_flops(net, "text"),
        }
        text = {name: texts * x / sum(lengths.values()) / rate for name, x in text.items()}
        whole = max(image, decode) + max(text["cut"], tokenize) + rest
        print(
            f"  {variant}: {whole:.0f} s (goal {goal}): image tower {image:.1f} beside decoding "
            f"{decode:.1f}, text tower {text['cut']:.1f} (at 77 tokens {text['full']:.1f}) beside "
            f"tokenization {tokenize:.1f}, the rest {rest:.1f}; towers at {UTILISATION:.0%} of the "
            "peak, assumed"
        )


def tower_flops(net: nn.Module, part: str, length: int | None = None) -> float:
    """FLOPs of a tower for one image, or for one text of `length` tokens (default: all)."""
    params = jax.eval_shape(lambda: models.init(net, jax.random.key(0)))
    rows = jax.eval_shape(lambda: models.example_batch(net))[part]
    if length is not None:
        rows = jax.ShapeDtypeStruct((1, length), rows.dtype)

    def encode(params: dict, rows: jax.Array) -> jax.Array:
        return net.apply({"params": params}, rows, method=f"encode_{part}").pooled

    return flops.count(jax.make_jaxpr(encode)(params, rows)).model


def write_data(folder: Path, count: int, images: int) -> dict[str, list[dict]]:
    """Writes images and cases.json: benchmark -> [{image: name, captions: correct one first}]."""
    rng = np.random.default_rng(0)
    for number in range(images):
        coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8))
        pixels = np.asarray(coarse.resize((640, 480), Image.Resampling.BICUBIC), np.int16)
        noisy = np.clip(pixels + rng.normal(0, 6, pixels.shape), 0, 255).astype(np.uint8)
        Image.fromarray(noisy).save(folder / f"{number}.jpg", quality=90)
    words = random.Random(0)
    captions = [[caption(words) for _ in range(CAPTIONS)] for _ in range(images)]
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


def caption(words: random.Random) -> list[str]:
    """The words of a caption, about as long as COCO's."""
    (a, b), (x, y) = words.sample(THINGS, 2), words.sample(LOOKS, 2)
    text = f"a {x} {a} {words.choice(PLACES)} a {y} {b} {words.choice(SCENES)}"
    return text.split()


def options(name: str, text: list[str], words: random.Random) -> list[list[str]]:
    """The captions of a case of a benchmark, the correct one first."""
    if name == "replace":
        wrong = [*text]
        wrong[2] = words.choice([thing for thing in THINGS if thing != text[2]])
        return [text, wrong]
    if name == "swap":
        second = next(i for i in range(3, len(text)) if text[i] in LOOKS)
        wrong = [*text]
        wrong[1], wrong[second] = text[second], text[1]
        return [text, wrong]
    if name == "order":
        return [text, *[words.sample(text, len(text)) for _ in range(4)]]
    return [text]


def work(folder: Path) -> None:
    """Our side: answers each line of stdin, a benchmark's name, with a line of JSON."""
    answers, sys.stdout = sys.stdout, sys.stderr
    facts, ask = build(folder)
    print(json.dumps(facts), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(ask(line.strip())), file=answers, flush=True)


def build(folder: Path) -> tuple[dict, Callable[[str], dict]]:
    """Facts, and a function that evaluates a benchmark by name.

    "again" evaluates all benchmarks from the cache's files, "known" from memory."""
    vocabulary = (folder / "vocabulary").read_text()
    config = config_of_weights(
        folder / "weights.pt",
        tokenizer=vocabulary,
        family="clip",
        variant="B/32",
        image_size=224,
        activation="gelu",
    )
    with config.unlocked():
        config.eval.cache = str(folder / "cache")
    setup = resolve(config, "weights")
    variables = {"params": init_from.load_complete(setup), "batch_stats": {}}
    rows = json.loads((folder / "cases.json").read_text())
    benchmarks = {
        name: Benchmark(
            name,
            [
                Case(str(n), (folder / row["image"],), tuple(row["captions"]))
                for n, row in enumerate(rows[name])
            ],
            "1",
        )
        for name in rows
    }

    def evaluate(encoder: Encoder, scorer: evaluators.Scorer, name: str) -> np.ndarray:
        encoder.prepare(variables, benchmarks[name])
        reader = "retrieval" if name == "retrieval" else "choice"
        result = evaluators.evaluate(reader, benchmarks[name], scorer)
        return np.array([row["scores"][0] for row in result.per_example])

    encoder = Encoder(setup, once=True)
    scorer = encoder.scorer(variables)
    start = time.perf_counter()
    warm_up(scorer)
    facts = {"compile": time.perf_counter() - start, **rates(setup, folder, rows)}

    def ask(name: str) -> dict:
        before = time.perf_counter(), time.process_time()
        if name == "known":
            scores = np.concatenate([evaluate(encoder, scorer, each) for each in benchmarks])
        elif name == "again":
            second = Encoder(setup, once=True)
            known = second.scorer(variables)
            scores = np.concatenate([evaluate(second, known, each) for each in benchmarks])
        else:
            scores = evaluate(encoder, scorer, name)
        seconds = time.perf_counter() - before[0], time.process_time() - before[1]
        np.save(folder / f"ours_{name}.npy", scores)
        return {"s": seconds[0], "cpu": seconds[1], "scores": str(folder / f"ours_{name}.npy")}

    return facts, ask


def warm_up(scorer: evaluators.Scorer) -> None:
    """Compiles every shape, with an image and texts that are in no benchmark."""
    images = scorer.embed_images([np.zeros((224, 224, 3), np.uint8)])
    texts = scorer.embed_texts([" ".join(["bird"] * count) for count in (1, 20, 40, 60)])
    scorer.score(images, texts)
    scorer.score_options(images, texts)


def rates(setup: Setup, folder: Path, rows: dict[str, list[dict]]) -> dict:
    """Images decoded and texts tokenized per second and core, and the distinct texts per length."""
    captions = (row["captions"] for each in rows.values() for row in each)
    texts = list(dict.fromkeys(text for options in captions for text in options))
    text_tower = setup.model.text
    cut = short_lengths(
        {"text": setup.tokenizer(texts)},
        text_tower.eos_id,
        text_lengths(text_tower.context_length),
    )
    files = sorted(folder.glob("*.jpg"))[:64]
    start = time.process_time()
    for file in files:
        setup.evaluation.transform(file, None)
    decoded = time.process_time()
    setup.tokenizer([f"{text} {number}" for number, text in enumerate(texts)])
    return {
        "decode": len(files) / (decoded - start),
        "tokenize": len(texts) / (time.process_time() - decoded),
        "lengths": {str(length): cut.count(length) for length in sorted(set(cut))},
    }


if __name__ == "__main__":
    main()

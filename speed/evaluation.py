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

import json
import random
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np
from flax import linen as nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, from any folder

from speed import harness
from vlc_jax import evaluators, models
from vlc_jax.devices import chips
from vlc_jax.encode.encoder import Encoder, short_lengths, text_lengths
from vlc_jax.input_pipeline.benchmarks import Benchmark, Case
from vlc_jax.setup import init_from, resolve
from vlc_jax.setup.weights_config import config_of_weights
from vlc_jax.train import flops
from vlc_jax.types.setup import Setup

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
# share of the GPU's peak: assumed, not measured
UTILISATION = 0.35
GOALS = {"B/32": 60, "L/14": 180}  # seconds


def main(
    cases: int = 10_000,
    images: int = 1000,
    batch_size: int = 64,
    workers: int = 2,
    torch_python: str = sys.executable,
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = write_data(folder, cases, images)
        texts = [text for each in rows.values() for row in each for text in row["captions"]]
        count = sum(map(len, rows.values()))
        print(
            f"{count:,} cases with {images:,} images, {len(texts):,} captions, "
            f"{len(set(texts)):,} different ones"
        )
        # torch comes first: it writes the weights that ours reads
        torch = harness.Worker(
            "torch", torch_python, "torch_evaluation.py", folder=folder, batch_size=batch_size,
            workers=workers,
        )  # fmt: skip
        (folder / "vocabulary").write_text(torch.facts["vocabulary"])
        environment = {"JAX_PLATFORMS": "cpu"}
        ours = harness.Worker("ours", sys.executable, "evaluation.py", environment, folder=folder)
        sides = {"torch": torch, "ours": ours}
        difference = harness.compare_scores(sides, {name: name for name in rows})
        again, known = ours.ask("again"), ours.ask("known")
        print(f"ours: compiled in {ours.facts['compile']:.1f} s before")
        print(f"ours a second time, from the cache: {again['s']:.1f} s")
        print(f"largest difference of a score: {difference:.1e}")
        predict(ours.facts, known["CPU s"] / (count + len(texts)))


def predict(facts: dict, row_seconds: float) -> None:
    """Prints the estimated seconds of the core suite on one H200.

    row_seconds: seconds per requested image or text, without decoding, tokenization and towers.
    """
    rate = UTILISATION * chips.CHIPS["NVIDIA H200"].flops
    images, texts = SUITE["images"], SUITE["texts"]
    lengths = {int(length): share for length, share in facts["lengths"].items()}
    predicted = {}
    for variant, goal in GOALS.items():
        net = models.build("clip", variant)
        of_texts = sum(share * tower_flops(net, "text", k) for k, share in lengths.items())
        parts = {
            "image tower": images * tower_flops(net, "image") / rate,
            "decoding": images / facts["decode"] / CORES,
            "text tower": texts * of_texts / rate,
            # not divided by the cores: tokenization runs on one thread
            "tokenization": texts / facts["tokenize"],
            # a lower bound: some rows are requested more than once
            "the rest": row_seconds * (images + texts),
        }
        first, second, third, fourth, rest = parts.values()
        # the host decodes and tokenizes while the GPU encodes: the slower of both counts
        whole = max(first, second) + max(third, fourth) + rest
        predicted[variant] = {"s": whole, "goal": goal, **parts}
    print(f"measured: {facts['decode']:.0f} images/s and core, {facts['tokenize']:,.0f} texts/s")
    title = f"core suite on one H200, towers at {UTILISATION:.0%} of its peak (assumed)"
    harness.compare(title, {}, 0, "", facts=predicted)


def tower_flops(net: nn.Module, part: str, length: int = 0) -> float:
    """FLOPs of a tower for one image, or for one text of `length` tokens."""
    params = jax.eval_shape(lambda: models.init(net, jax.random.key(0)))
    rows = jax.eval_shape(lambda: models.example_batch(net))[part]
    if length:
        rows = jax.ShapeDtypeStruct((1, length), rows.dtype)

    def encode(params: dict, rows: jax.Array) -> jax.Array:
        return net.apply({"params": params}, rows, method=f"encode_{part}").pooled

    return flops.count(jax.make_jaxpr(encode)(params, rows)).model


def write_data(folder: Path, count: int, images: int) -> dict[str, list[dict]]:
    """Writes images and cases.json: benchmark -> [{image: name, captions: correct one first}]."""
    rng = np.random.default_rng(0)
    for number in range(images):
        harness.photo(rng, 640, 480).save(folder / f"{number}.jpg", quality=90)
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


def build(folder: str) -> tuple[dict, harness.Ask]:
    """Facts of our side, and a function that evaluates a benchmark by name.

    "again" evaluates all benchmarks from the cache's files, "known" from memory.
    """
    folder = Path(folder)
    vocabulary = (folder / "vocabulary").read_text()
    shape = {"family": "clip", "variant": "B/32", "image_size": 224, "activation": "gelu"}
    config = config_of_weights(folder / "weights.pt", tokenizer=vocabulary, **shape)
    with config.unlocked():
        config.eval.cache = str(folder / "cache")
    setup = resolve(config, "weights")
    variables = {"params": init_from.load_complete(setup), "batch_stats": {}}
    rows = json.loads((folder / "cases.json").read_text())
    benchmarks = {
        name: Benchmark(name, [case_of(folder, n, row) for n, row in enumerate(each)], "1")
        for name, each in rows.items()
    }

    def evaluate(encoder: Encoder, scorer: evaluators.Scorer, *names: str) -> list[float]:
        scores = []
        for name in names:
            encoder.prepare(variables, benchmarks[name])
            reader = "retrieval" if name == "retrieval" else "choice"
            result = evaluators.evaluate(reader, benchmarks[name], scorer)
            scores += [float(row["scores"][0]) for row in result.per_example]
        return scores

    # one encoder for all benchmarks: it encodes what they share once
    encoder = Encoder(setup, once=True)
    scorer = encoder.scorer(variables)
    _, compiling = harness.timed(lambda: warm_up(scorer))

    def answer(name: str) -> list[float]:
        if name == "again":
            # a new encoder remembers nothing, and reads the files of the first
            second = Encoder(setup, once=True)
            return evaluate(second, second.scorer(variables), *benchmarks)
        return evaluate(encoder, scorer, *(benchmarks if name == "known" else (name,)))

    def ask(name: str) -> dict:
        scores, seconds = harness.timed(lambda: answer(name))
        return {**seconds, "scores": scores}

    return {"compile": compiling["s"], **rates(setup, folder, rows)}, ask


def case_of(folder: Path, number: int, row: dict) -> Case:
    return Case(str(number), (folder / row["image"],), tuple(row["captions"]))


def warm_up(scorer: evaluators.Scorer) -> None:
    """Compiles every shape, with an image and texts that are in no benchmark."""
    images = scorer.embed_images([np.zeros((224, 224, 3), np.uint8)])
    texts = scorer.embed_texts([" ".join(["bird"] * count) for count in (1, 20, 40, 60)])
    scorer.score(images, texts)
    scorer.score_options(images, texts)


def rates(setup: Setup, folder: Path, rows: dict[str, list[dict]]) -> dict:
    """Images decoded and texts tokenized per second and core, and the share of texts per length."""
    captions = (row["captions"] for each in rows.values() for row in each)
    texts = list(dict.fromkeys(text for options in captions for text in options))
    text_tower = setup.model.text
    lengths = text_lengths(text_tower.context_length)
    cut = short_lengths({"text": setup.tokenizer(texts)}, text_tower.eos_id, lengths)
    files = sorted(folder.glob("*.jpg"))[:64]
    transform = setup.evaluation.transform
    _, decoding = harness.timed(lambda: [transform(file, None) for file in files])
    new = [f"{text} {number}" for number, text in enumerate(texts)]
    _, tokenizing = harness.timed(lambda: setup.tokenizer(new))
    return {
        "decode": len(files) / decoding["CPU s"],
        "tokenize": len(texts) / tokenizing["CPU s"],
        "lengths": {str(length): cut.count(length) / len(cut) for length in sorted(set(cut))},
    }


if __name__ == "__main__":
    harness.command(main, build)

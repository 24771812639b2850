"""Images per second and core: JPEG files, the embedded scenes, and whole training loaders.

  python speed/loader.py
  python speed/loader.py --torch-python .venv-parity/bin/python

One thread, CPU seconds (less sensitive to other processes than wall time), interleaved rounds,
median over rounds. Compares our JPEG path with plain Pillow as in open_clip's and Hugging Face's
preprocessing: decode, RGB, bicubic resize of the short side, centre crop. The other lines are whole
training loaders (shuffled records, captions drawn and tokenized, batches of 64): over JPEG files,
over their shards by `vlc-jax prepare`, and, with --torch-python, torch's DataLoader over the same
files (speed/torch_loader.py).
"""

import argparse
import io
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, from any folder

from speed.worker import Worker  # noqa: E402
from vlc_jax.input_pipeline.commands import shard_writer  # noqa: E402
from vlc_jax.input_pipeline.images.image_ops import ImageTransform  # noqa: E402
from vlc_jax.input_pipeline.loader.loader import make_train  # noqa: E402
from vlc_jax.input_pipeline.record import (  # noqa: E402
    Record,
    Source,
)
from vlc_jax.input_pipeline.sources import make_source  # noqa: E402
from vlc_jax.input_pipeline.tokenizers import make_tokenizer  # noqa: E402

BATCH = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--images", type=int, default=64, help="JPEG files per round")
    parser.add_argument("--scenes", type=int, default=1000, help="scenes per round")
    parser.add_argument("--torch-python", default="", help="interpreter with torch, to compare")
    args = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    files = jpeg_files(args.images)
    measure_images(files, args)
    with tempfile.TemporaryDirectory() as folder:
        measure_loaders(files, Path(folder), args)


def measure_images(files: list[bytes], args: argparse.Namespace) -> None:
    transform = ImageTransform(224, "centre")
    scenes = make_source("scenes", "train")
    sizes = {256: "341x256", 224: "299x224"}
    stored = {size: [shrunk(data, size) for data in files] for size in sizes}
    rows: dict[str, tuple[Callable[[], None], int]] = {
        "JPEG 500x375 -> 224, ours": (lambda: apply(transform, files), args.images),
        "JPEG 500x375 -> 224, plain Pillow": (lambda: apply(plain_pillow, files), args.images),
        **{
            f"JPEG {shape} -> 224, ours (what vlc-jax prepare --size {size} stores)": (
                lambda size=size: apply(transform, stored[size]),
                args.images,
            )
            for size, shape in sizes.items()
        },
        "scenes-mini record (sample, draw, 4 captions)": (
            lambda: apply(scenes.__getitem__, range(args.scenes)),
            args.scenes,
        ),
    }
    rates = measure(rows, args.rounds)
    for name, values in rates.items():
        print(f"{name}: {statistics.median(values):,.0f} images/s per core")
    compare("ours / plain Pillow", *list(rates.values())[:2])
    print(f"whole loader, scenes-mini: {whole_loader(scenes, 40):,.0f} examples per CPU second")


def measure_loaders(files: list[bytes], folder: Path, args: argparse.Namespace) -> None:
    """Whole loaders over the same images, interleaved."""
    sources = {"JPEG files": Files(files)}
    for number, data in enumerate(files):
        (folder / f"{number:04d}.jpg").write_bytes(data)
    for size in (256, 224):
        shards = folder / f"shards_{size}"
        shard_writer.write(sources["JPEG files"], shards, size=size)
        sources[f"shards, --size {size}"] = make_source("shards", "all", path=str(shards))
    theirs, rates = None, {name: [] for name in sources}
    if args.torch_python:
        script = str(ROOT / "speed/torch_loader.py")
        theirs = Worker("torch", (args.torch_python, script, str(folder), str(BATCH)))
        rates[f"JPEG files, DataLoader of {theirs.facts['name']}"] = of_torch = []
    for _ in range(args.rounds):
        for name, source in sources.items():
            rates[name].append(whole_loader(source, 224))
        if theirs:
            answer = theirs.ask("pass")
            of_torch.append(answer["images"] / answer["seconds"])
    for name, values in rates.items():
        print(f"whole loader, {name}: {statistics.median(values):,.0f} examples per CPU second")
    if theirs:
        for name in sources:
            compare(f"ours from {name} / torch's from JPEG files", rates[name], of_torch)
        theirs.close()


def compare(name: str, ours: list[float], others: list[float]) -> None:
    """Prints the ratio of two rates, round by round."""
    ratios = [a / b for a, b in zip(ours, others, strict=True)]
    print(
        f"{name}, round by round: {statistics.median(ratios):.2f} x "
        f"(min {min(ratios):.2f}, max {max(ratios):.2f})"
    )


def shrunk(data: bytes, size: int) -> bytes:
    return shard_writer.shrink(Record("", data, [""]), size, "jpeg")


def measure(rows: dict[str, tuple[Callable[[], None], int]], rounds: int) -> dict[str, list[float]]:
    """Images per CPU second of each row, by round, without the warm-up round."""
    rates: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(rounds + 1):
        for name, (work, count) in rows.items():
            start = time.process_time()
            work()
            rates[name].append(count / (time.process_time() - start))
    return {name: values[1:] for name, values in rates.items()}


def apply(function: Callable, items: object) -> None:
    for item in items:
        function(item)


def plain_pillow(data: bytes) -> np.ndarray:
    """Pixels by plain Pillow: bicubic resize of the short side to 224, central square."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    scale = 224 / min(image.size)
    width, height = (max(224, round(side * scale)) for side in image.size)
    image = image.resize((width, height), Image.Resampling.BICUBIC)
    left, top = (width - 224) // 2, (height - 224) // 2
    return np.asarray(image.crop((left, top, left + 224, top + 224)))


def jpeg_files(count: int) -> list[bytes]:
    """JPEG files with the detail of photographs: smooth shades, edges and fine noise."""
    rng, files = np.random.default_rng(0), []
    for _ in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8))
        pixels = np.asarray(coarse.resize((500, 375), Image.Resampling.BICUBIC), np.int16)
        pixels = pixels + rng.normal(0, 6, pixels.shape)
        buffer = io.BytesIO()
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=90)
        files.append(buffer.getvalue())
    return files


class Files:
    """The JPEG files as a source."""

    fingerprint = "benchmark"

    def __init__(self, files: list[bytes]):
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Record:
        return Record(str(index), self.files[index], ["a photo of something"])


def whole_loader(source: Source, size: int, batches: int = 4) -> float:
    """Examples per CPU second of batches, on one thread."""
    tokenizer = make_tokenizer("scenes", 20)
    transform = ImageTransform(size, "centre")
    with make_train(source, tokenizer, transform, batch_size=BATCH, seed=0, threads=1) as loader:
        next(loader)
        start = time.process_time()
        for _ in range(batches):
            next(loader)
        return BATCH * batches / (time.process_time() - start)


if __name__ == "__main__":
    main()

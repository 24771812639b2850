"""Images per second and core: JPEG files, the embedded scenes, and whole training loaders.

  python speed/loader.py

One thread, CPU seconds of this process (other processes disturb them less than wall time), rounds
interleaved, median over rounds. Our JPEG path is compared with plain Pillow as in open_clip's and
Hugging Face's preprocessing: decode, RGB, bicubic resize of the short side, centre crop. The last
lines are whole training loaders: records in shuffled order, captions drawn and tokenized, batches
stacked.
"""

import argparse
import io
import os
import platform
import statistics
import time
from collections.abc import Callable

import numpy as np
from PIL import Image

import input_pipeline
from input_pipeline import shard_writer
from input_pipeline.record import Record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--images", type=int, default=64, help="JPEG files per round")
    parser.add_argument("--scenes", type=int, default=1000, help="scenes per round")
    args = parser.parse_args()
    files = jpeg_files(args.images)
    transform = input_pipeline.ImageTransform(224, "centre")
    scenes = input_pipeline.make_source("scenes", "train")
    stored = [shard_writer.shrink(Record("", data, [""]), 256, "jpeg") for data in files]
    rows: dict[str, tuple[Callable[[], None], int]] = {
        "JPEG 500x375 -> 224, ours": (lambda: apply(transform, files), args.images),
        "JPEG 500x375 -> 224, plain Pillow": (lambda: apply(plain_pillow, files), args.images),
        "JPEG 341x256 -> 224, ours (what input_pipeline.prepare --size 256 stores)": (
            lambda: apply(transform, stored),
            args.images,
        ),
        "scenes-mini record (sample, draw, 4 captions)": (
            lambda: apply(scenes.__getitem__, range(args.scenes)),
            args.scenes,
        ),
    }
    rates = measure(rows, args.rounds)
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    for name, values in rates.items():
        print(f"{name}: {statistics.median(values):,.0f} images/s per core")
    ours, plain = list(rates.values())[:2]
    ratios = [a / b for a, b in zip(ours, plain, strict=True)]
    print(
        f"ours / plain Pillow, round by round: {statistics.median(ratios):.2f} x "
        f"(min {min(ratios):.2f}, max {max(ratios):.2f})"
    )
    print(f"whole loader, scenes-mini: {whole_loader(scenes):,.0f} examples per CPU second")
    print(f"whole loader, JPEG: {whole_loader(Files(files), 224):,.0f} examples per CPU second")


def measure(rows: dict[str, tuple[Callable[[], None], int]], rounds: int) -> dict[str, list[float]]:
    """Images per CPU second of each row, by round, without a first round to warm up."""
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


def whole_loader(source: input_pipeline.Source, size: int = 40, batches: int = 8) -> float:
    """Examples per CPU second of batches of 64, on one thread."""
    tokenizer = input_pipeline.make_tokenizer("scenes", 20)
    transform = input_pipeline.ImageTransform(size, "centre")
    with input_pipeline.make_train(
        source, tokenizer, transform, batch_size=64, seed=0, threads=1
    ) as loader:
        next(loader)
        start = time.process_time()
        for _ in range(batches):
            next(loader)
        return 64 * batches / (time.process_time() - start)


if __name__ == "__main__":
    main()

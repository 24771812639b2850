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
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, from any folder

from speed import harness
from vlc_jax.input_pipeline.commands import shard_job, shard_writer
from vlc_jax.input_pipeline.images.transforms import ImageTransform
from vlc_jax.input_pipeline.loader.loader import make_train
from vlc_jax.input_pipeline.record import Record, Source
from vlc_jax.input_pipeline.sources import make_source
from vlc_jax.input_pipeline.tokenizers import make_tokenizer

BATCH = 64


def main() -> None:
    parser = harness.parser(__doc__, rounds=9, has_workers=True)
    parser.add_argument("--images", type=int, default=64, help="JPEG files per round")
    parser.add_argument("--scenes", type=int, default=1000, help="scenes per round")
    # not this interpreter, as elsewhere: without the flag, only ours is measured
    parser.set_defaults(torch_python="")
    args = parser.parse_args()
    harness.print_machine()
    files = jpeg_files(args.images)
    measure_images(files, args)
    with tempfile.TemporaryDirectory() as folder:
        measure_loaders(files, Path(folder), args)


def measure_images(files: list[bytes], args: argparse.Namespace) -> None:
    transform = ImageTransform(224, "centre")
    scenes = make_source("scenes", "train")
    stored = {size: [shrunk(data, size) for data in files] for size in (256, 224)}
    prepared = "ours (what vlc-jax prepare --size {} stores)"
    rates = harness.interleave(
        {
            "JPEG 500x375 -> 224, ours": partial(rate, transform, files),
            "JPEG 500x375 -> 224, plain Pillow": partial(rate, plain_pillow, files),
            f"JPEG 341x256 -> 224, {prepared.format(256)}": partial(rate, transform, stored[256]),
            f"JPEG 299x224 -> 224, {prepared.format(224)}": partial(rate, transform, stored[224]),
            "scenes-mini record (sample, draw, 4 captions)": partial(
                rate, scenes.__getitem__, range(args.scenes)
            ),
        },
        args.rounds,
    )
    for name, values in rates.items():
        print(f"{name}: {statistics.median(values):,.0f} images/s per core")
    ours, pillow, *_ = rates.values()
    print(f"ours / plain Pillow, round by round: {harness.ratio(ours, pillow)}")
    print(f"whole loader, scenes-mini: {whole_loader(scenes, 40):,.0f} examples per CPU second")


def measure_loaders(files: list[bytes], folder: Path, args: argparse.Namespace) -> None:
    """Whole loaders over the same images, interleaved."""
    sources: dict[str, Source] = {"JPEG files": Files(files)}
    for number, data in enumerate(files):
        (folder / f"{number:04d}.jpg").write_bytes(data)
    for size in (256, 224):
        shards = folder / f"shards_{size}"
        shard_writer.write(sources["JPEG files"], shards, size=size)
        sources[f"shards, --size {size}"] = make_source("shards", "all", path=str(shards))
    sides = {name: partial(whole_loader, source, 224) for name, source in sources.items()}
    theirs = None
    if args.torch_python:
        theirs = harness.Worker("torch", args.torch_python, "torch_loader.py", folder, BATCH)
        of_torch = f"JPEG files, DataLoader of {theirs.facts['name']}"
        sides[of_torch] = lambda: theirs.ask("pass")["rate"]
    # every loader drops its own first batches; a round needs no warm-up
    rates = harness.interleave(sides, args.rounds, warm_up=0)
    for name, values in rates.items():
        print(f"whole loader, {name}: {statistics.median(values):,.0f} examples per CPU second")
    if theirs:
        for name in sources:
            ratio = harness.ratio(rates[name], rates[of_torch])
            print(f"ours from {name} / torch's from JPEG files, round by round: {ratio}")
        theirs.close()


def shrunk(data: bytes, size: int) -> bytes:
    return shard_job.shrink(Record("", data, [""]), size, "jpeg")


def rate(function: Callable, items: Sequence) -> float:
    """Items per CPU second."""

    def work() -> None:
        for item in items:
            function(item)

    return len(items) / harness.timed(work)[1]["cpu"]


def plain_pillow(data: bytes) -> np.ndarray:
    return harness.centre_pixels(Image.open(io.BytesIO(data)))


def jpeg_files(count: int) -> list[bytes]:
    rng, files = np.random.default_rng(0), []
    for _ in range(count):
        buffer = io.BytesIO()
        harness.photo(rng, 500, 375).save(buffer, "JPEG", quality=90)
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
        # the first batch opens the files and starts the thread
        next(loader)
        return BATCH * rate(lambda _: next(loader), range(batches))


if __name__ == "__main__":
    main()

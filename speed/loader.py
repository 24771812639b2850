"""Images per second and core: JPEG files, and whole training loaders.

  python speed/loader.py
  python speed/loader.py --torch-python .venv-parity/bin/python

One thread, CPU seconds (less sensitive to other processes than wall time), interleaved rounds,
median over rounds. Compares our JPEG path with plain Pillow as in open_clip's and Hugging Face's
preprocessing: decode, RGB, bicubic resize of the short side, centre crop. The second table is of
whole training loaders (shuffled records, captions drawn and tokenized, batches of 64): over JPEG
files, over their shards by `vlc-jax prepare`, and, with --torch-python, torch's DataLoader over the
same files (speed/torch_evaluation.py).
"""

import io
import sys
import tempfile
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


def main(images: int = 64, torch_python: str = "", rounds: int = 9) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = jpeg_files(images)
        measure_images(files, rounds)
        measure_loaders(files, Path(folder), torch_python, rounds)


def measure_images(files: list[bytes], rounds: int) -> None:
    transform = ImageTransform(224, "centre")
    sides = {
        "JPEG 500x375 -> 224, ours": partial(harness.rate, transform, files),
        "JPEG 500x375 -> 224, plain Pillow": partial(harness.rate, plain_pillow, files),
        **{
            f"what vlc-jax prepare --size {size} stores -> 224, ours": partial(
                harness.rate, transform, [shrunk(data, size) for data in files]
            )
            for size in (256, 224)
        },
    }
    harness.compare("images", sides, rounds, "JPEG 500x375 -> 224, plain Pillow")


def measure_loaders(files: list[bytes], folder: Path, torch_python: str, rounds: int) -> None:
    """Whole loaders of the same images, interleaved."""
    sources: dict[str, Source] = {"JPEG files": Pictures(files)}
    for number, data in enumerate(files):
        (folder / f"{number:04d}.jpg").write_bytes(data)
    for size in (256, 224):
        path = folder / f"shards_{size}"
        shard_writer.write(sources["JPEG files"], path, size=size)
        sources[f"shards, --size {size}"] = make_source("shards", "all", path=str(path))
    sides = {name: partial(whole_loader, source) for name, source in sources.items()}
    if torch_python:
        theirs = harness.Worker(
            "torch", torch_python, "torch_evaluation.py", folder=folder, batch_size=BATCH
        )
        sides["JPEG files, torch's DataLoader"] = partial(theirs.ask, "pass")
    # every loader drops its own first batches; a round needs no warm-up
    harness.compare(
        "whole loaders, examples", sides, rounds, "JPEG files, torch's DataLoader", warm_up=0
    )


def shrunk(data: bytes, size: int) -> bytes:
    return shard_job.shrink(Record("", data, [""]), size, "jpeg")


def plain_pillow(data: bytes) -> np.ndarray:
    return harness.centre_pixels(Image.open(io.BytesIO(data)))


def jpeg_files(count: int) -> list[bytes]:
    rng, files = np.random.default_rng(0), []
    for _ in range(count):
        buffer = io.BytesIO()
        harness.photo(rng, 500, 375).save(buffer, "JPEG", quality=90)
        files.append(buffer.getvalue())
    return files


class Pictures:
    """JPEG files as a source."""

    fingerprint = "benchmark"

    def __init__(self, files: list[bytes]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Record:
        return Record(str(index), self.files[index], ["a photo of something"])


def whole_loader(source: Source, batches: int = 4) -> dict[str, float]:
    """Examples per CPU second of batches, on one thread."""
    tokenizer = make_tokenizer("scenes", 20)
    transform = ImageTransform(224, "centre")
    with make_train(source, tokenizer, transform, batch_size=BATCH, seed=0, threads=1) as loader:
        # the first batch opens the files and starts the thread
        next(loader)
        rates = harness.rate(lambda _: next(loader), range(batches))
    return {name: BATCH * rate for name, rate in rates.items()}


if __name__ == "__main__":
    harness.command(main)

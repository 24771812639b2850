"""Images per second and core: decoding and cropping alone, and whole training loaders.

  python speed/loader.py
  python speed/loader.py --table flickr8k/captions.csv --torch-python .venv-parity/bin/python

One thread, CPU seconds (less sensitive to other processes than wall time), interleaved rounds,
median over rounds. A loader shuffles records, draws and tokenizes captions and makes batches of 64:
from the JPEG files of a table (a caption file beside its images; default: random ones of 500x375
pixels), from their shards by `vlc-jax prepare` and, with --torch-python, by torch's DataLoader over
the same files (speed/torch_evaluation.py). "Plain Pillow": decode, RGB, bicubic resize of the short
side, centre crop, as in open_clip's and Hugging Face's preprocessing.
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
from vlc_jax.input_pipeline.commands import shard_writer
from vlc_jax.input_pipeline.images.transforms import CROPS, ImageTransform
from vlc_jax.input_pipeline.loader.loader import make_train
from vlc_jax.input_pipeline.record import Record, Source
from vlc_jax.input_pipeline.sources import make_source
from vlc_jax.input_pipeline.tokenizers import make_tokenizer

BATCH, BATCHES = 64, 4
SHARD_SIZES = (256, 224)


def main(
    table: str = "",
    crop: str = "centre",
    # an index of a shuffled epoch of 64 takes 250 us, of this one 10
    records: int = 4096,
    torch_python: str = "",
    rounds: int = 9,
) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        source = make_source("records", "all", path=table) if table else pictures(folder, records)
        transform = ImageTransform(224, crop)
        paths = [source[index].image for index in range(min(BATCH, records))]
        rng = np.random.default_rng(0)
        sides = {
            "decode and crop alone": partial(harness.rate, lambda x: transform(x, rng), paths),
            "the same in plain Pillow": partial(harness.rate, plain_pillow, paths),
            "loader, JPEG files": partial(whole_loader, source, transform),
        }
        for size in SHARD_SIZES:
            shards = folder / f"shards_{size}"
            first = Records(source[index] for index in range(min(len(source), records // 4)))
            shard_writer.write(first, shards, size=size)
            prepared = make_source("shards", "all", path=str(shards))
            sides[f"loader, prepare --size {size}"] = partial(whole_loader, prepared, transform)
        if torch_python:
            theirs = harness.Worker(
                "torch", torch_python, "torch_evaluation.py",
                folder=paths[0].parent, batch_size=BATCH, batches=BATCHES,
            )  # fmt: skip
            sides["loader, torch's DataLoader"] = partial(theirs.ask, "pass")
        harness.compare("224 pixels", sides, rounds, [*sides][-1 if torch_python else 0])


def plain_pillow(path: Path) -> np.ndarray:
    return harness.centre_pixels(Image.open(io.BytesIO(path.read_bytes())))


class Records(list[Record]):
    """A list as a source."""

    fingerprint = "benchmark"


def pictures(folder: Path, count: int) -> Records:
    """Many records of random JPEG files, at most 64."""
    rng, paths = np.random.default_rng(0), [folder / f"{k}.jpg" for k in range(min(count, 64))]
    for path in paths:
        harness.photo(rng, 500, 375).save(path, "JPEG", quality=90)
    caption = ["a photo of something"]
    return Records(Record(str(k), paths[k % len(paths)], caption) for k in range(count))


def whole_loader(source: Source, transform: ImageTransform) -> dict[str, float]:
    """Examples per CPU second of batches, on one thread."""
    tokenizer = make_tokenizer("bytes", 77)
    with make_train(source, tokenizer, transform, batch_size=BATCH, seed=0, threads=1) as loader:
        # the first batch opens the files and starts the thread
        next(loader)
        rates = harness.rate(lambda _: next(loader), range(BATCHES))
    return {name: BATCH * rate for name, rate in rates.items()}


if __name__ == "__main__":
    harness.command(main, crop=CROPS)

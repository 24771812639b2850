"""Images per second and core: JPEG files, the embedded scenes, and whole training loaders.

  python speed/loader.py
  python speed/loader.py --torch-python .venv-parity/bin/python
  python speed/loader.py --simulate 1e9

One thread, CPU seconds (less sensitive to other processes than wall time), interleaved rounds,
median over rounds. Compares our JPEG path with plain Pillow as in open_clip's and Hugging Face's
preprocessing: decode, RGB, bicubic resize of the short side, centre crop. The second table is of
whole training loaders (shuffled records, captions drawn and tokenized, batches of 64): over JPEG
files, over their shards by `vlc-jax prepare`, and, with --torch-python, torch's DataLoader over the
same files (speed/torch_loader.py).

--simulate measures instead how a folder of that many pairs opens, beside one of a million: a
manifest of shards of 4,000 records, and four files; shard k is file k % 4. Each line is a process;
CPU seconds, and its most memory so far.
"""

import io
import json
import shutil
import sys
import tempfile
import time
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
from vlc_jax.input_pipeline.sources import make_source, order, shards, table_index
from vlc_jax.input_pipeline.tokenizers import make_tokenizer

BATCH = 64
# of --simulate; STEPS: batches whose order is computed, BATCHES: whole ones
SHARD, FILES, LARGE, STEPS, BATCHES = 4000, 4, 1024, 100, 4


def main(
    images: int = 64,
    scenes: int = 1000,
    simulate: float = 0.0,
    torch_python: str = "",
    rounds: int = 9,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        if simulate:
            measure_simulated(int(simulate), Path(folder))
        else:
            files = jpeg_files(images)
            measure_images(files, scenes, rounds)
            measure_loaders(files, Path(folder), torch_python, rounds)


def measure_images(files: list[bytes], scenes: int, rounds: int) -> None:
    transform, source = ImageTransform(224, "centre"), make_source("scenes", "train")
    sides = {
        "JPEG 500x375 -> 224, ours": partial(harness.rate, transform, files),
        "JPEG 500x375 -> 224, plain Pillow": partial(harness.rate, plain_pillow, files),
        **{
            f"what vlc-jax prepare --size {size} stores -> 224, ours": partial(
                harness.rate, transform, [shrunk(data, size) for data in files]
            )
            for size in (256, 224)
        },
        "scenes-mini record (sample, draw, 4 captions)": partial(
            harness.rate, source.__getitem__, range(scenes)
        ),
    }
    harness.compare("images", sides, rounds, "JPEG 500x375 -> 224, plain Pillow")


def measure_loaders(files: list[bytes], folder: Path, torch_python: str, rounds: int) -> None:
    """Whole loaders, interleaved; of the same images but for the scenes."""
    sources: dict[str, Source] = {"JPEG files": Pictures(files)}
    for number, data in enumerate(files):
        (folder / f"{number:04d}.jpg").write_bytes(data)
    for size in (256, 224):
        path = folder / f"shards_{size}"
        shard_writer.write(sources["JPEG files"], path, size=size)
        sources[f"shards, --size {size}"] = make_source("shards", "all", path=str(path))
    sides = {name: partial(whole_loader, source, 224) for name, source in sources.items()}
    sides["scenes-mini"] = partial(whole_loader, make_source("scenes", "train"), 40)
    if torch_python:
        theirs = harness.Worker(
            "torch", torch_python, "torch_loader.py", folder=folder, batch_size=BATCH
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
    """Pictures, files or arrays, as a source; they repeat up to `count`."""

    fingerprint = "benchmark"

    def __init__(self, pictures: list, count: int = 0) -> None:
        self.pictures, self.count = pictures, count or len(pictures)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Record:
        picture = self.pictures[index % len(self.pictures)]
        return Record(str(index), picture, ["a photo of something"])


def whole_loader(source: Source, size: int, batches: int = 4) -> dict[str, float]:
    """Examples per CPU second of batches, on one thread."""
    tokenizer = make_tokenizer("scenes", 20)
    transform = ImageTransform(size, "centre")
    with make_train(source, tokenizer, transform, batch_size=BATCH, seed=0, threads=1) as loader:
        # the first batch opens the files and starts the thread
        next(loader)
        rates = harness.rate(lambda _: next(loader), range(batches))
    return {name: BATCH * rate for name, rate in rates.items()}


def measure_simulated(pairs: int, folder: Path) -> None:
    """Prints a line per size and shuffle: a million pairs and `pairs`."""
    for size in (10**6, pairs):
        write_simulated(folder / str(size), size)
        # the very first opening makes the index
        shuffles = {"global, no index": "global"} | {name: name for name in order.SHUFFLES}
        facts = {}
        for title, shuffle in shuffles.items():
            path = folder / str(size)
            worker = harness.Worker("", sys.executable, "loader.py", path=path, shuffle=shuffle)
            facts[title] = {key: x for key, x in worker.facts.items() if key != "versions"}
            worker.close()
        harness.compare(f"{size:,} pairs", {}, 0, "", facts=facts)
        shutil.rmtree(folder / str(size))


def write_simulated(folder: Path, pairs: int) -> None:
    """A folder whose manifest names its four shards as often as needed."""
    greys = [np.full((16, 16, 3), level, np.uint8) for level in range(256)]
    shard_writer.write(Pictures(greys, SHARD * FILES), folder, size=16, shard_size=SHARD)
    path = folder / shards.MANIFEST
    manifest = json.loads(path.read_text())
    count = pairs // SHARD
    manifest["shards"] = [manifest["shards"][number % FILES] for number in range(count)]
    path.write_text(json.dumps(manifest | {"count": count * SHARD}, indent=1))
    # an index is kept of a file that was not changed a moment ago
    time.sleep(table_index._SETTLED + 0.5)


def build(path: str, shuffle: str) -> tuple[dict, harness.Ask]:
    """CPU seconds and memory of a run's start: opening, first batch, order and whole batches."""
    tokenizer, transform = make_tokenizer("bytes", 77), ImageTransform(16, "centre")
    start, before = harness.cpu_seconds(), harness.memory()
    source = make_source("shards", "all", path=path, shuffle=shuffle)
    opened = harness.cpu_seconds()
    with make_train(source, tokenizer, transform, batch_size=LARGE, seed=0, threads=1) as loader:
        next(loader)
        first = harness.cpu_seconds()
        _, batches = harness.timed(lambda: [next(loader) for _ in range(BATCHES)])
    indices = order.make(source, 1)
    # every place far from the one before, as after a restart
    places = range(0, STEPS * 10**7, 10**7)
    _, jumps = harness.timed(lambda: [indices[place] for place in places])
    _, ordered = harness.timed(lambda: [indices[p] for p in range(10**9, 10**9 + STEPS * LARGE)])
    facts = {
        "opened in": opened - start,
        "first batch": first - start,
        "order": ordered["CPU s"] / STEPS,
        "a restart": jumps["CPU s"] / STEPS,
        "a batch": batches["CPU s"] / BATCHES,
        "MiB": harness.memory() / 2**20,
        "of imports": before / 2**20,
    }
    return facts, lambda _: {}


if __name__ == "__main__":
    harness.command(main, build)

"""Opening and order of a folder of many shards, in a process of its own; speed/loader.py calls it.

  python speed/loader.py --simulate 1e9

A folder of PAIRS pairs has a manifest of all its shards of 4,000 records, and four files: shard k
is file k % 4. CPU seconds, and the most memory so far, of a process for each line.
"""

import json
import shutil
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, from any folder

from speed import harness
from vlc_jax.input_pipeline.commands import shard_writer
from vlc_jax.input_pipeline.images.transforms import ImageTransform
from vlc_jax.input_pipeline.loader.loader import make_train
from vlc_jax.input_pipeline.record import Record
from vlc_jax.input_pipeline.sources import make_source, order, shards, table_index
from vlc_jax.input_pipeline.tokenizers import make_tokenizer

SHARD, FILES, BATCH = 4000, 4, 1024
STEPS, BATCHES = 100, 4  # batches whose order is computed, and whole ones
COLUMNS = (
    "opened in",
    "first batch",
    "order of a batch",
    "first place of a restart",
    "a batch",
    "MiB",
    "MiB of imports",
)
WIDTH = 26


class Small:
    """Records of one small picture."""

    fingerprint = "simulation"

    def __len__(self) -> int:
        return SHARD * FILES

    def __getitem__(self, index: int) -> Record:
        return Record(str(index), np.full((16, 16, 3), index % 256, np.uint8), ["a grey square"])


def write(folder: Path, pairs: int) -> None:
    """A folder whose manifest names the four shards of another one as often as needed."""
    shard_writer.write(Small(), folder, size=16, shard_size=SHARD)
    path = folder / shards.MANIFEST
    manifest = json.loads(path.read_text())
    count = pairs // SHARD
    manifest["shards"] = [manifest["shards"][number % FILES] for number in range(count)]
    path.write_text(json.dumps(manifest | {"count": count * SHARD}, indent=1))
    # an index is kept of a file that was not changed a moment ago
    time.sleep(table_index._SETTLED + 0.5)


def measure(folder: Path, shuffle: str) -> dict[str, float]:
    """CPU seconds and memory of a run's start: opening, first batch, order and whole batches."""
    tokenizer, transform = make_tokenizer("bytes", 77), ImageTransform(16, "centre")
    start, before = harness.cpu_seconds(), memory()
    source = make_source("shards", "all", path=folder, shuffle=shuffle)
    opened = harness.cpu_seconds()
    with make_train(source, tokenizer, transform, batch_size=BATCH, seed=0, threads=1) as loader:
        next(loader)
        first = harness.cpu_seconds()
        _, batches = harness.timed(lambda: [next(loader) for _ in range(BATCHES)])
    indices = order.make(source, 1)
    # every place far from the one before, as after a restart
    places = range(0, STEPS * 10**7, 10**7)
    _, jumps = harness.timed(lambda: [indices[place] for place in places])
    _, ordered = harness.timed(lambda: [indices[p] for p in range(10**9, 10**9 + STEPS * BATCH)])
    return {
        "opened in": opened - start,
        "first batch": first - start,
        "order of a batch": ordered["cpu"] / STEPS,
        "first place of a restart": jumps["cpu"] / STEPS,
        "a batch": batches["cpu"] / BATCHES,
        "MiB": memory(),
        "MiB of imports": before,
    }


def memory() -> float:
    """The most memory of this process so far, MiB."""
    # not getrusage, which counts the memory of the parent before exec, too
    status = Path("/proc/self/status").read_text().split()
    return int(status[status.index("VmHWM:") + 1]) / 1024


def compare(pairs: int, folder: Path) -> None:
    """Prints a line per size and shuffle: a million pairs and `pairs`."""
    print(f"{'':40}" + "".join(f"{name:>{WIDTH}}" for name in COLUMNS))
    for size in (10**6, pairs):
        part = folder / str(size)
        write(part, size)
        # the very first opening makes the index
        for shuffle, note in (("global", ", no index"), *((name, "") for name in order.SHUFFLES)):
            worker = harness.Worker(shuffle, sys.executable, Path(__file__).name, part, shuffle)
            values = "".join(f"{worker.facts[name]:>{WIDTH}.4g}" for name in COLUMNS)
            print(f"{f'{size:,} pairs, {shuffle}{note}':40}{values}", flush=True)
            worker.close()
        shutil.rmtree(part)


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]), sys.argv[2])), flush=True)

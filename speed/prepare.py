"""Time and memory of `vlc-jax prepare` with one process and with workers of Apache Beam.

  python speed/prepare.py
  python speed/prepare.py --records 1000000

Pictures of 32 x 32 pixels and short texts in tars, that were opened before. CPU seconds of all
processes, and their share of the cores meanwhile; memory is the largest sum of their proportional
set sizes (PSS), twice a second.
"""

import io
import itertools
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, from any folder

from speed import harness
from vlc_jax.input_pipeline.sources import make_source

PER_TAR = 10_000


def main(records: int = 200_000, workers: int = 2) -> None:
    beam = [
        *("--threads=1", "--runner=DirectRunner", "--", "--direct_running_mode=multi_processing"),
        f"--direct_num_workers={workers}",
    ]
    ways = {
        f"one process, {workers} threads": [f"--threads={workers}"],
        f"Beam, {workers} processes": beam,
    }
    numbers = itertools.count()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "tars", records)
        make_source("img2dataset", "train", tars=folder / "tars")
        sides = {
            way: lambda words=words: measure(folder, [f"--out={next(numbers)}", *words])
            for way, words in ways.items()
        }
        harness.compare(f"{records:,} records", sides, 1, "", warm_up=0)


def write(folder: Path, records: int) -> None:
    """Tars of pictures of 16 squares, the same ones in each, and of their texts."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    pictures = [picture(rng) for _ in range(min(records, PER_TAR))]
    for first in range(0, records, PER_TAR):
        with tarfile.open(
            folder / f"{first // PER_TAR:05d}.tar", "w", format=tarfile.USTAR_FORMAT
        ) as tar:
            for number in range(first, min(first + PER_TAR, records)):
                text = f"picture {number}, a small one".encode()
                for suffix, content in (("png", pictures[number - first]), ("txt", text)):
                    member = tarfile.TarInfo(f"{number:09d}.{suffix}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    time.sleep(3)  # a tar that was written this moment gets no index


def picture(rng: np.random.Generator) -> bytes:
    squares = Image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8))
    squares.resize((32, 32), Image.Resampling.NEAREST).save(data := io.BytesIO(), "PNG")
    return data.getvalue()


def measure(folder: Path, words: list[str]) -> dict[str, float]:
    """Seconds, CPU seconds, and largest memory of a command and its processes."""
    command = ["-m", "vlc_jax", "prepare", "img2dataset", "--tars=tars", "--size=32", *words]
    memory = [0]

    def run() -> None:
        environment = {**os.environ, "PYTHONPATH": str(harness.ROOT)}
        process = subprocess.Popen([sys.executable, *command], cwd=folder, env=environment)
        while process.poll() is None:
            tree = psutil.Process(process.pid)
            memory.append(sum(map(pss, [tree, *tree.children(recursive=True)])))
            time.sleep(0.5)
        if process.returncode:
            raise SystemExit(f"exit code {process.returncode}: {command}")

    _, seconds = harness.timed(run)
    share = seconds["CPU s"] / seconds["s"] / (os.cpu_count() or 1)
    return {**seconds, "share of cores": share, "MB": max(memory) / 1e6}


def pss(process: psutil.Process) -> int:
    try:
        return process.memory_full_info().pss
    except psutil.Error:  # it has ended
        return 0


if __name__ == "__main__":
    harness.command(main)

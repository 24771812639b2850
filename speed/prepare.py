"""Time and memory of `vlc-jax prepare` with one process and with workers of Apache Beam.

  python speed/prepare.py
  python speed/prepare.py --records 1000000

Pictures of 32 x 32 pixels and short texts in tars, that were opened before. CPU seconds of all
processes, and their share of the cores meanwhile; memory is the largest sum of their proportional
set sizes (PSS), twice a second.
"""

import io
import os
import resource
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


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    harness.print_machine()
    runner = [
        "--threads=1",
        "--runner=DirectRunner",
        "--",
        "--direct_running_mode=multi_processing",
    ]
    ways = {
        f"one process, {options.workers} threads": [f"--threads={options.workers}"],
        f"Beam, {options.workers} processes": [*runner, f"--direct_num_workers={options.workers}"],
    }
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "tars", options.records)
        make_source("img2dataset", "train", tars=Path(folder) / "tars")
        for number, (name, words) in enumerate(ways.items()):
            wall, cpu, memory = measure(Path(folder), [f"--out={number}", *words])
            share = cpu / wall / (os.cpu_count() or 1)
            print(
                f"{name}: {cpu:.1f} CPU seconds in {wall:.1f} s ({share:.0%} of the cores), "
                f"{memory / 1e6:.0f} MB",
                flush=True,
            )


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


def measure(folder: Path, words: list[str]) -> tuple[float, float, float]:
    """Seconds and CPU seconds of a command and its processes, their largest memory in bytes."""
    command = ["-m", "vlc_jax", "prepare", "img2dataset", "--tars=tars", "--size=32", *words]
    before, start, memory = cpu_seconds(), time.monotonic(), 0
    environment = {**os.environ, "PYTHONPATH": str(harness.ROOT)}
    process = subprocess.Popen([sys.executable, *command], cwd=folder, env=environment)
    while process.poll() is None:
        tree = psutil.Process(process.pid)
        memory = max(memory, sum(map(pss, [tree, *tree.children(recursive=True)])))
        time.sleep(0.5)
    if process.returncode:
        raise SystemExit(f"exit code {process.returncode}: {command}")
    return time.monotonic() - start, cpu_seconds() - before, memory


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def pss(process: psutil.Process) -> int:
    try:
        return process.memory_full_info().pss
    except psutil.Error:  # it has ended
        return 0


if __name__ == "__main__":
    main()

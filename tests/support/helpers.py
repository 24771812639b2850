"""Runs of the command line as a user starts them, in processes of their own; small files."""

import contextlib
import gzip
import hashlib
import json
import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from tests.support import compilations, forks

ROOT = Path(__file__).resolve().parents[2]

TINY = "tests/support/tiny.py"


def words(config: str, workdir: Path | str, *flags: str) -> list[str]:
    """Of the command line, behind the name of the interpreter."""
    return ["-m", "vlc_jax.main", "--config", config, "--workdir", str(workdir), *flags]


def environment(devices: int = 1) -> dict[str, str]:
    """Of a run on simulated devices; on one, what an earlier run compiled is compiled no more."""
    chosen = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(devices)}
    return {**os.environ, **chosen, **compilations.cache_variables(ROOT)}


def run(
    config: str, workdir: Path | str, *flags: str, **options: int | None
) -> subprocess.CompletedProcess:
    """Runs to the end; options: as of `python`."""
    return python(*words(config, workdir, *flags), **options)


def start(config: str, workdir: Path | str, *flags: str, devices: int = 1) -> forks.Job:
    """Starts a run whose stderr can be read line by line."""
    return forks.Job(words(config, workdir, *flags), ROOT, environment(devices))


def python(
    *words: str | Path,
    cwd: Path = ROOT,
    devices: int = 1,
    timeout: float = 300,
    code: int | None = None,
) -> subprocess.CompletedProcess:
    """Runs `python WORDS` to the end, without the seconds of its imports; output is text.

    code: the exit code that it must have; None: any.
    """
    job = forks.Job([str(word) for word in words], cwd, environment(devices))
    stdout, stderr = job.communicate(timeout)
    assert code in (None, job.returncode), stderr
    return subprocess.CompletedProcess(job.args, job.returncode, stdout, stderr)


def interpreter(*words: str | Path, devices: int = 1) -> subprocess.CompletedProcess:
    """As `python`, in an interpreter of its own, with its imports, hash seed and exit."""
    return program(sys.executable, *words, env=environment(devices))


def program(
    *words: object,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    timeout: float = 300,
    code: int | None = None,
) -> subprocess.CompletedProcess:
    """Runs any program to its end; output is text.   code: as of `python`."""
    options = {"capture_output": True, "text": True, "timeout": timeout, "check": False}
    done = subprocess.run(list(map(str, words)), cwd=cwd, env=env, **options)
    assert code in (None, done.returncode), done.stderr
    return done


@contextlib.contextmanager
def memory_below(most: float) -> Iterator[None]:
    """What Python and numpy hold in the body stays below so many bytes."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def kill(pid: int) -> None:
    """kill -9"""
    os.kill(pid, signal.SIGKILL)


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_rows(path: Path, rows: Iterable[object]) -> Path:
    """A JSON value per line; returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_clip_vocabulary(path: Path) -> str:
    """A gzipped vocabulary of CLIP's form whose first merges are "re", "red", "ca", "cat", "'s",
    "an" and whose others no ASCII text and no "é" needs; returns the sha256 of its merges.
    """
    merges = ["r e", "re d</w>", "c a", "ca t</w>", "' s</w>", "a n"]
    codes = {*range(0xA1, 0xAD), *range(0xAE, 0x144)} - set("é".encode())
    letters = [chr(code) for code in sorted(codes)]
    merges += [f"{a} {b}{end}" for a in letters for b in letters for end in ("", "</w>")]
    merges = merges[: 49_408 - 2 * 256 - 2]
    path.write_bytes(gzip.compress("\n".join(["#version", *merges]).encode()))
    return hashlib.sha256("".join(f"{merge}\n" for merge in merges).encode()).hexdigest()


def write_photos(folder: Path, count: int = 12, suffix: str = ".jpg") -> list[str]:
    """JPEG files of different sizes, each mostly of one colour; returns their names."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    names = []
    for i in range(count):
        height, width = rng.integers(40, 120, size=2)
        pixels = rng.integers(0, 60, size=(height, width, 3)) + rng.integers(0, 195, size=3)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"photo_{i}{suffix}")
        names.append(f"photo_{i}{suffix}")
    return names


def write_jsonl(folder: Path, names: list[str], column: str = "caption") -> Path:
    """A table of one caption per image."""
    rows = ({"image": name, column: f"picture number {i}"} for i, name in enumerate(names))
    return write_rows(folder / "captions.jsonl", rows)

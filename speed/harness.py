"""Shared parts of the measurements: flags, sides measured in turn, ratios by round, random inputs.

Imports neither JAX nor torch, since the interpreters of both read it.
"""

import argparse
import json
import os
import platform
import resource
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
GIB = 2**30
Result = TypeVar("Result")
Ask = Callable[[str], dict]


def parser(doc: str, *, rounds: int = 0, has_workers: bool = False) -> argparse.ArgumentParser:
    """A parser with --rounds (default `rounds`; 0: without it), and the flags of workers."""
    made = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if rounds:
        made.add_argument(
            "--rounds", type=int, default=rounds, help="each measures all sides in turn"
        )
    if has_workers:
        made.add_argument("--torch-python", default=sys.executable, help="interpreter with torch")
        made.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    return made


def print_machine(*more: str) -> None:
    """Prints the machine, versions and the command line."""
    # not os.cpu_count(): taskset limits the cores that the sides get
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    python = f"Python {platform.python_version()}"
    print(", ".join((f"{platform.machine()}, {cores} cores, load {load:.1f}, {python}", *more)))
    print(f"python {shlex.join(sys.argv)}", flush=True)


class Worker:
    """A process that prints its facts as a line of JSON, then a line per question.

    Sides are separate processes that wait while another works: all measure the same machine, and
    memory is counted per side. script: a file of this folder that calls `serve`.
    """

    def __init__(self, name: str, python: str, script: str, *options: object, **environment: str):
        self.name = name
        self.process = subprocess.Popen(
            (python, ROOT / "speed" / script, *map(str, options)),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # torch's interpreter has this checkout nowhere else
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            text=True,
        )
        self.facts = self._read()

    def ask(self, question: str) -> dict:
        """The answer to one line on the worker's stdin."""
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the {self.name} side ended; its error is above")
        return json.loads(line)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def serve(build: Callable[..., tuple[dict, Ask]], *args: Any) -> None:
    """Runs a worker: prints the facts of `build`, then its answer to each line of stdin."""
    # before any import of a library, whose own output would break the lines of JSON
    answers, sys.stdout = sys.stdout, sys.stderr
    facts, ask = build(*args)
    print(json.dumps(facts), file=answers, flush=True)
    for question in sys.stdin:
        print(json.dumps(ask(question.strip())), file=answers, flush=True)


def timed(work: Callable[[], Result]) -> tuple[Result, dict[str, float]]:
    """The result of `work`, and its seconds: "s" by the clock, "cpu" of all threads."""
    start, cpu = time.perf_counter(), cpu_seconds()
    result = work()
    return result, {"s": time.perf_counter() - start, "cpu": cpu_seconds() - cpu}


def cpu_seconds() -> float:
    """CPU seconds of this process and of its finished children, such as a DataLoader's workers."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)


def interleave(
    sides: Mapping[str, Callable[[], Result]], rounds: int, *, warm_up: int = 1
) -> dict[str, list[Result]]:
    """Results of every side by round; a round runs each side once, in order."""
    results: dict[str, list[Result]] = {name: [] for name in sides}
    for number in range(-warm_up, rounds):
        for name, side in sides.items():
            result = side()
            # the first round allocates memory and fills caches, which no later one does
            if number >= 0:
                results[name].append(result)
    return results


class Ratio(NamedTuple):
    """Ratio of two sides over rounds."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} x (min {self.low:.2f}, max {self.high:.2f})"

    @property
    def span(self) -> str:
        return f"{self.low:.2f} to {self.high:.2f}"


def ratio(ours: Sequence[float], others: Sequence[float]) -> Ratio:
    """Ratios by round: a load of the machine during a round slows both sides of it alike."""
    ratios = [a / b for a, b in zip(ours, others, strict=True)]
    return Ratio(statistics.median(ratios), min(ratios), max(ratios))


def compare_scores(sides: Mapping[str, Worker], questions: Mapping[str, str], width: int) -> float:
    """Prints wall and CPU seconds of "ours" and "torch" per question, and ratios to ours.

    questions: label of a line -> question. Returns the largest difference of a score.
    """
    wall = f"{'ours s':>9}{'torch s':>9}{'ratio':>7}"
    print(f"{'':{width}}{wall}{'CPU s':>9}{'CPU s':>9}{'ratio':>7}")
    total, difference = dict.fromkeys(sides, np.zeros(2)), 0.0
    for label, question in questions.items():
        answers = {name: worker.ask(question) for name, worker in sides.items()}
        times = {name: np.array([a["s"], a["cpu"]]) for name, a in answers.items()}
        total = {name: total[name] + times[name] for name in total}
        scores = [np.array(answers[name]["scores"]) for name in ("ours", "torch")]
        difference = max(difference, float(np.abs(scores[0] - scores[1]).max()))
        _print_times(f"{label:{width}}", times)
    _print_times(f"{'all':{width}}", total)
    return difference


def _print_times(label: str, times: Mapping[str, np.ndarray]) -> None:
    pairs = zip(times["ours"], times["torch"], strict=True)
    print(label + "".join(f"{a:9.1f}{b:9.1f}{b / a:6.1f}x" for a, b in pairs), flush=True)


def photo(rng: np.random.Generator, width: int, height: int, *, noise: float = 6.0) -> Image.Image:
    """A random image with the detail of a photograph: smooth shades, edges and fine noise."""
    coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8))
    smooth = coarse.resize((width, height), Image.Resampling.BICUBIC)
    if not noise:
        return smooth
    pixels = np.asarray(smooth, np.int16)
    noisy = pixels + rng.normal(0, noise, pixels.shape)
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))


def centre_pixels(image: Image.Image) -> np.ndarray:
    """Pixels by plain Pillow: bicubic resize of the short side to 224, central square."""
    image = image.convert("RGB")
    scale = 224 / min(image.size)
    # cut, not rounded, as torchvision does: else scores differ from those of CLIP's transforms
    width, height = (max(224, int(scale * side)) for side in image.size)
    image = image.resize((width, height), Image.Resampling.BICUBIC)
    left, top = (width - 224) // 2, (height - 224) // 2
    return np.array(image.crop((left, top, left + 224, top + 224)))


def random_tokens(
    rng: np.random.Generator, shape: Sequence[int], vocabulary: int, eos: int
) -> np.ndarray:
    """Random token ids that fill the context, with EOS last."""
    tokens = rng.integers(3, vocabulary - 2, shape, dtype=np.int32)
    tokens[..., -1] = eos
    return tokens

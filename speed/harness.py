"""Shared parts of the measurements: options, sides measured in turn, ratios, random inputs.

Imports neither JAX nor torch, since the interpreters of both read it.
"""

import argparse
import functools
import importlib.metadata
import inspect
import json
import os
import platform
import resource
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
GIB = 2**30
WORKER = "--worker"  # before the arguments of a process, as JSON
LIBRARIES = {  # module -> the package whose version is printed
    "jax": "jax", "flax": "flax", "orbax": "orbax-checkpoint", "torch": "torch",
    "transformers": "transformers", "open_clip": "open_clip_torch",
}  # fmt: skip
Result = TypeVar("Result")
Ask = Callable[[str], dict]
Build = Callable[..., tuple[dict, Ask]]
Side = Callable[[], Mapping[str, float]]


def command(main: Callable[..., None], worker: Build | None = None, **choices: Iterable) -> None:
    """Runs a file of this folder: `main` with the options of its signature, or a process of it.

    An option has the type of its default; False is a switch, a tuple several values. choices: of
    an option.
    """
    if sys.argv[1:2] == [WORKER]:
        serve(worker)
        return
    parser = argparse.ArgumentParser(
        description=sys.modules[main.__module__].__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, parameter in inspect.signature(main).parameters.items():
        flag, default = f"--{name.replace('_', '-')}", parameter.default
        if default is False:
            parser.add_argument(flag, action="store_true")
            continue
        one, nargs = ((*default, "")[0], "*") if isinstance(default, tuple) else (default, None)
        parser.add_argument(
            flag, type=type(one), default=default, nargs=nargs, choices=choices.get(name),
            metavar=name.upper(), help=f"default: {default}",
        )  # fmt: skip
    options = vars(parser.parse_args())
    # not os.cpu_count(): taskset limits the cores that the sides get
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    python = f"Python {platform.python_version()}"
    print(
        ", ".join((f"{platform.machine()}, {cores} cores, load {load:.1f}, {python}", versions()))
    )
    print(f"python {shlex.join(sys.argv)}", flush=True)
    main(**options)


def versions() -> str:
    """Versions of the libraries that this process has imported."""
    return ", ".join(
        f"{package} {importlib.metadata.version(package)}"
        for module, package in LIBRARIES.items()
        if module in sys.modules
    )


class Worker:
    """A process that prints its facts as a line of JSON, then a line per question.

    Sides are separate processes that wait while another works: all measure the same machine, and
    memory is counted per side. script: a file of this folder that calls `serve`, with `arguments`.
    """

    def __init__(
        self,
        name: str,
        python: str,
        script: str,
        environment: Mapping[str, str] | None = None,
        **arguments: object,
    ) -> None:
        self.name = name
        self.process = subprocess.Popen(
            (python, ROOT / "speed" / script, WORKER, json.dumps(arguments, default=str)),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # torch's interpreter has this checkout nowhere else
            env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
            text=True,
        )

    @functools.cached_property
    def facts(self) -> dict:
        """Facts of the side, read when they are asked for: several processes start at once."""
        facts = self._read()
        print(f"{self.name}: {facts['versions']}", flush=True)
        return facts

    def ask(self, question: str) -> dict:
        """The answer to one line on the worker's stdin, after its facts."""
        _ = self.facts  # their line comes before the answers
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the {self.name} side ended; its error is above")
        return json.loads(line)

    def close(self) -> None:
        """Ends the process; it also ends with this one."""
        self.process.stdin.close()
        self.process.wait()


def serve(build: Build) -> None:
    """Runs a worker: prints the facts of `build`, then its answer to each line of stdin."""
    # before any import of a library, whose own output would break the lines of JSON
    answers, sys.stdout = sys.stdout, sys.stderr
    facts, ask = build(**json.loads(sys.argv[2]))
    print(json.dumps({"versions": versions(), **facts}), file=answers, flush=True)
    for question in sys.stdin:
        print(json.dumps(ask(question.strip())), file=answers, flush=True)


def timed(work: Callable[[], Result]) -> tuple[Result, dict[str, float]]:
    """The result of `work`, and its seconds: "s" by the clock, "CPU s" of all threads."""
    start, cpu = time.perf_counter(), cpu_seconds()
    result = work()
    return result, {"s": time.perf_counter() - start, "CPU s": cpu_seconds() - cpu}


def cpu_seconds() -> float:
    """CPU seconds of this process and of its finished children, such as a DataLoader's workers."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)


def rate(function: Callable, items: Sequence) -> dict[str, float]:
    """Items per CPU second."""

    def work() -> None:
        for item in items:
            function(item)

    _, seconds = timed(work)
    return {"per CPU s": len(items) / seconds["CPU s"]}


def memory() -> int:
    """The most bytes of this process so far."""
    # not getrusage, which counts the memory of the parent before exec, too
    status = Path("/proc/self/status").read_text().split()
    return 1024 * int(status[status.index("VmHWM:") + 1])


def ratio(ours: Sequence[float], others: Sequence[float]) -> str:
    """Median and range of the ratios by round: a load of the machine during a round slows both
    sides of it alike."""
    ratios = [a / b for a, b in zip(ours, others, strict=True)]
    return f"{statistics.median(ratios):.2f} x ({min(ratios):.2f} to {max(ratios):.2f})"


def compare(
    title: str,
    sides: Mapping[str, Side],
    rounds: int,
    reference: str,
    *,
    facts: Mapping[str, Mapping[str, float]] | None = None,
    warm_up: int = 1,
) -> dict[str, dict[str, float]]:
    """Measures all sides in turn, `rounds` times, and prints a table; returns its medians.

    A row has the median of each quantity of a side, its ratio to that of the side `reference` by
    round, and `facts`, which also have a row for a side that is not measured.
    """
    results: dict[str, list[Mapping[str, float]]] = {name: [] for name in sides}
    for number in range(-warm_up, rounds):
        for name, side in sides.items():
            result = side()
            # the first round allocates memory and fills caches, which no later one does
            if number >= 0:
                results[name].append(result)
    columns = {
        name: {key: [each[key] for each in rows] for key in rows[0]}
        for name, rows in results.items()
    }
    facts = {name: {} for name in sides} | dict(facts or {})
    quantities = [*dict.fromkeys(key for each in columns.values() for key in each)]
    known = [*dict.fromkeys(key for each in facts.values() for key in each)]
    width = max(map(len, (title, *facts))) + 2
    print(f"\n{title:{width}}" + "".join(f"{key:>12}{'':26}" for key in quantities), end="")
    print("".join(f"{key:>14}" for key in known))
    for name, side_facts in facts.items():
        values, line = columns.get(name, {}), f"{name:{width}}"
        for key in quantities:
            others = columns.get(reference, {}).get(key) if name != reference else None
            line += f"{statistics.median(values[key]):12.4g}" if key in values else f"{'-':>12}"
            line += f"{f'  {ratio(values[key], others)}' if key in values and others else '':26}"
        line += "".join(
            f"{side_facts[key]:14.4g}" if key in side_facts else f"{'-':>14}" for key in known
        )
        print(line.rstrip(), flush=True)
    return {
        name: {key: statistics.median(values) for key, values in each.items()}
        for name, each in columns.items()
    }


def photo(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    """A random image with the detail of a photograph: smooth shades, edges and fine noise."""
    coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8))
    smooth = coarse.resize((width, height), Image.Resampling.BICUBIC)
    pixels = np.asarray(smooth, np.int16)
    noisy = pixels + rng.normal(0, 6, pixels.shape)
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

"""Benchmarks on models of other libraries, and on scores that were computed elsewhere.

No device is used: the memory of a GPU is the model's.
"""

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from rich.console import Console
from rich.progress import Progress

from vlc_jax import evaluators
from vlc_jax.errors import UsageError
from vlc_jax.evaluation import text_nulls
from vlc_jax.evaluation.benchmarks import named_errors, open_vectors, write_result
from vlc_jax.evaluation.kept_calls import KeptCalls
from vlc_jax.evaluators import Scorer, foreign, score_table
from vlc_jax.input_pipeline.benchmarks import Benchmark, protocol_of
from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.run import results, workdir_files
from vlc_jax.run.workdir import read_object, write_json
from vlc_jax.types.setup import BenchmarkSetup

STEP = 0  # of all results: a model that is no checkpoint of a run has no steps
# a scorer that gives other scores than before is another one; on a GPU sums vary in their order
TOLERANCE = {"rtol": 1e-3, "atol": 1e-5}


class Task(NamedTuple):
    """One benchmark for one foreign model, and where its result goes.

    name: of the benchmark.   workdir: results go to its evals/<name>.   scorer: name of the model.
    examples: cases whose images are kept for the report.
    """

    name: str
    setup: BenchmarkSetup
    benchmark: Benchmark
    workdir: Path
    scorer: str
    examples: int

    @property
    def protocol(self) -> str:
        """Protocol of the benchmark's reader."""
        return protocol_of(self.setup.reader)

    def folder(self, weights: str) -> Path:
        """Folder of the results of a model. Raises UsageError if it has those of another one."""
        plain = self.workdir / "evals" / self.name
        if (file := plain / f"{STEP}.json").exists():
            other = read_object(file).get("weights")
            if other != weights:
                raise UsageError(
                    f"{plain} has the scores of {other}, not of {weights}: choose another workdir, "
                    "or remove that folder"
                )
        return results.folder_of(self.workdir / "evals", self._question(weights))

    def finished(self, weights: str) -> dict[str, Any] | None:
        """The result of a model that is on disk, if any."""
        return results.finished(self.folder(weights), STEP, self._question(weights))

    def run(
        self, benchmark: Benchmark, scorer: Scorer, weights: str, **made_with: Any
    ) -> dict[str, Any]:
        """Evaluates `scorer` on `benchmark` and writes the result; returns it."""
        started, setup, folder = time.perf_counter(), self.setup, self.folder(weights)
        with named_errors(self.name):
            options = open_vectors(self.protocol, setup.protocol_options)
            result = evaluators.evaluate(self.protocol, benchmark, scorer, **options)
            credits = text_nulls.case_credits(self.benchmark, setup)
            text_nulls.add(result, self.benchmark, credits)
        row = evaluators.to_json(
            self.protocol,
            benchmark,
            result,
            reader=setup.reader,
            chosen=setup.protocol_options.get("protocol", ""),
            benchmark=folder.name,
            step=STEP,
            checkpoint={"scorer": self.scorer, "step": STEP},
            options=setup.options,
            reader_options=setup.reader_options,
            weights=weights,
            made_with=made_with,
            seconds=time.perf_counter() - started,
        )
        write_result(folder, self.benchmark, result, row, self.examples)
        return read_object(folder / f"{STEP}.json")

    def _question(self, weights: str) -> results.Question:
        setup, version = self.setup, self.benchmark.version
        return results.Question(self.name, setup.reader, dict(setup.options), version, weights)


def read(name: str, setup: BenchmarkSetup) -> Benchmark:
    """Reads a benchmark and decodes its first image: missing files are refused before any call."""
    with named_errors(name, setup.reader):
        benchmark = setup.read()
    with named_errors(name, setup.reader, is_read=True):
        if benchmark.cases:
            for image in benchmark.cases[0].images:
                image_ops.open_rgb(image)
    return benchmark


def evaluate_table(task: Task, table: Mapping[str, Any]) -> dict[str, Any]:
    """The result of scores that exist: case id -> scores (`score_table.scorer`)."""
    handles, scorer = score_table.scorer(task.protocol, task.benchmark, table)
    scores = {case: np.ravel(score_table.numbers(row)).tolist() for case, row in table.items()}
    digest = hashlib.sha256(json.dumps(scores, sort_keys=True).encode()).hexdigest()[:16]
    weights = f"{task.scorer} {digest}"
    return task.finished(weights) or task.run(handles, scorer, weights, table=digest)


def evaluate_scorer(task: Task, model: Any, batch_size: int | None) -> dict[str, Any]:
    """The result of a model (`foreign.scorer`); results of calls are kept until it is written."""
    if row := task.finished(task.scorer):
        print(f"{task.name}: kept from {task.folder(task.scorer)}", file=sys.stderr)
        return row
    path = task.workdir / "unfinished" / f"{task.folder(task.scorer).name}.jsonl"
    calls = KeptCalls(path, {"scorer": task.scorer})
    with closing(calls), _progress(task) as advance:
        scorer = foreign.scorer(model, calls, batch_size, advance)
        row = task.run(task.benchmark, scorer, task.scorer)
    calls.remove()
    return row


def check_scorer(
    folder: Path, model: Any, benchmarks: Iterable[Benchmark], batch_size: int | None
) -> None:
    """Compares scores of a model with those of the folder's probe: one image with two texts.

    The first model of a folder makes the probe, of the first of `benchmarks` that has both.
    Raises UsageError if the scores differ: whatever the benchmark, they are of another model.
    """
    file, image = folder / "probe.json", folder / "probe.png"
    if not file.exists():
        texts = _make_probe(image, benchmarks)
        if texts:
            if (folder / "evals").exists():
                print(
                    f"{folder} has results and no {file.name}: whether they are of the same model "
                    "is not known, and is taken for granted",
                    file=sys.stderr,
                )
            write_json(file, {"texts": texts, "scores": _scores(model, image, texts, batch_size)})
        return
    saved = read_object(file)
    try:
        texts, before = list(saved["texts"]), [float(score) for score in saved["scores"]]
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{file} has no texts and scores; remove it") from error
    now = _scores(model, image, texts, batch_size)
    if len(before) != len(now) or not np.allclose(before, now, **TOLERANCE):
        raise UsageError(
            f"{folder} has scores of another scorer: the image {image.name} had {before} with the "
            f"texts of {file.name}, and now has {now}; choose another workdir, or remove this one "
            "(for a model whose scores vary from call to call, say with name=... at its first call "
            "that it is the same one)"
        )


def _make_probe(path: Path, benchmarks: Iterable[Benchmark]) -> list[str]:
    """Writes an image of a benchmark to `path`; returns two of its texts, none if it has none."""
    for benchmark in benchmarks:
        images = [image for case in benchmark.cases[:1] for image in case.images[:1]]
        texts = [text for text in benchmark.texts if isinstance(text, str)][:2]
        if images and texts:
            Image.fromarray(image_ops.decode(images[0])).save(workdir_files.without_link(path))
            return texts
    return []


def _scores(model: Any, image: Path, texts: list[str], batch_size: int | None) -> list[float]:
    scorer = foreign.scorer(model, {}, batch_size)
    scores = scorer.score(scorer.embed_images([image]), scorer.embed_texts(texts))
    return [float(score) for score in np.asarray(scores).ravel()]


@contextmanager
def _progress(task: Task) -> Iterator[Callable[[int], object]]:
    """A bar of the images that have been scored, on a terminal; a line when all have been."""
    images = (image for case in task.benchmark.cases for image in case.images)
    # an array has no hash, and is no other case's
    total = len({id(image) if isinstance(image, np.ndarray) else image for image in images})
    started = time.perf_counter()
    with Progress(
        console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()
    ) as bar:
        number = bar.add_task(f"{task.name}, images", total=total)
        yield lambda images: bar.advance(number, images)
    seconds = time.perf_counter() - started
    cases = f"{len(task.benchmark.cases):,} cases, {total:,} images"
    print(f"{task.name}: {cases}, {seconds:.0f} s", file=sys.stderr)

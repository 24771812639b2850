"""Runs the configured benchmarks on parameters and writes the results into the workdir."""

import copy
import dataclasses
import datetime
import json
import logging
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from PIL import Image

from vlc_jax import evaluators
from vlc_jax.devices import sharding
from vlc_jax.encode import segments
from vlc_jax.encode.encoder import Encoder
from vlc_jax.encode.interrupt import Interrupt
from vlc_jax.errors import UsageError
from vlc_jax.evaluation import text_nulls
from vlc_jax.evaluators import EvalResult, Scorer, negation, patch_maps, questions
from vlc_jax.input_pipeline.benchmarks import PUBLISHED, Benchmark, protocol_of
from vlc_jax.input_pipeline.case import image_file, maps_file
from vlc_jax.input_pipeline.commands import leaks
from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.loader import questions as image_questions
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.tokenizers.text_vectors import TextVectors
from vlc_jax.run import results, workdir_files
from vlc_jax.run.processes.preemption import StopSignal
from vlc_jax.run.workdir import Workdir, write_json
from vlc_jax.types.setup import Setup

# Seconds of a benchmark that is no line of its own between the lines of training.
SHORT = 10.0


class Evaluation:
    """The configured benchmarks, read once and run on any number of states.

    Args:
      setup: of the run; `setup.evaluation` names the benchmarks.
      workdir: results go to evals/<name>/<step>.json and <step>.scores.jsonl (the name is set by
        run/results.py), with `evals` in the workdir or in the folder of `into`; images/ and maps/
        beside them are for the report (vlc_jax/evaluators/patch_maps.py).
      stop: checked between batches, and by a single process also while a batch is read. When any
        process got a signal, all raise PreemptedError. Finished benchmarks stay on disk and are not
        computed again; so do features, in features/ of the workdir, until all are finished.
      weights: fingerprint of parameters that do not belong to a step of this workdir.
    """

    def __init__(
        self, setup: Setup, workdir: Workdir, stop: StopSignal, weights: str | None = None
    ):
        self.setup, self.workdir = setup, workdir
        self._weights = weights
        self._folders: dict[str, Path] = {}
        self.reused: list[str] = []  # benchmarks whose results existed already
        self._options = setup.evaluation
        self._root = workdir.path
        self._benchmarks: dict[str, Benchmark] = {}
        self._credits: dict[str, text_nulls.Credits] = {}
        self._encoder = Encoder(
            setup,
            Interrupt(stop),
            once=True,
            is_writer=workdir.is_writer,
            unfinished=workdir.path / "features",
        )

    def read(self) -> None:
        """Reads every benchmark and decodes its first images.

        Invalid options, missing files, damaged images and texts without vectors are so refused
        before training.
        """
        tokenizer = self.setup.tokenizer
        for name in self._options.benchmarks:
            reader = self._options.benchmarks[name].reader
            with named_errors(name, reader):
                benchmark = self._read(name)
            with named_errors(name, reader, is_read=True):
                for case in benchmark.cases[: self._options.preview]:
                    for image in case.images:
                        self._encoder.transform(image, None)
                options = self._options.benchmarks[name].options
                how = negation.options(options.get("negation"))
                more = negation.texts(benchmark.texts, how) if how else []
                if parts := evaluators.segments(options.get("segments")):
                    more += segments.texts(benchmark.texts, parts)
                tokenizer.require([*benchmark.texts, *more])

    def into(self, folder: str) -> "Evaluation":
        """A copy that writes its results into `folder` of the workdir."""
        # shallow: the copy shares benchmarks and encoder, but not the folders, which have a root
        other = copy.copy(self)
        other._root, other._folders = self.workdir.path / folder, {}
        return other

    def run(self, variables: Any, step: int, seconds: float | None = None) -> list[dict[str, Any]]:
        """Runs every benchmark on `variables` at `step`; returns the contents of the JSON files.

        Results on disk are reused. seconds: time budget, after which no further benchmark starts;
        an event lists the benchmarks that were left out.
        """
        try:
            rows = self._run(variables, step, seconds)
        except BaseException:
            self._encoder.save()
            raise
        self._encoder.forget()
        return rows

    def _run(self, variables: Any, step: int, seconds: float | None) -> list[dict[str, Any]]:
        start, rows, left = time.monotonic(), [], []
        scorer = self._encoder.scorer(variables)
        if not self.is_complete(step):
            self._write_maps(variables, scorer, step)
        for name in self._options.benchmarks:
            is_late = seconds is not None and time.monotonic() - start >= seconds
            # clocks differ, and a benchmark has collectives: all processes skip it, or none
            if sharding.any_process(is_late) and not self._is_finished(name, step):
                left.append(name)
            else:
                rows.append(self._one(name, variables, scorer, step))
        if left:
            self.workdir.event("evaluation_left", step=step, seconds=seconds, benchmarks=left)
        return rows

    def forget_after(self, step: int) -> None:
        """Removes results of later steps, which a run resumed at `step` computes again."""
        for path in (self.workdir.path / "evals").glob("*/*.json*"):
            name = path.name.split(".")[0]
            if self.workdir.owns_files and name.isdecimal() and int(name) > step:
                path.unlink()

    def is_complete(self, step: int) -> bool:
        """True if all results of a step are on disk."""
        return all(self._is_finished(name, step) for name in self._options.benchmarks)

    def publish(self, step: int) -> None:
        """Prints the result table of a complete step, and writes the report."""
        # here: training does not need its templates and plots
        from vlc_jax import report

        if self.workdir.is_writer:
            report.print_table([self._finished(name, step) for name in self._options.benchmarks])
            for name in self._options.benchmarks:
                if (folder := self._folder(name)).name != name:
                    print(f"{folder.name}: evals/{name} has results of {name!r} for other options")
            print(f"report: {self.workdir.display_path(report.write(self.workdir.path))}")

    def _one(self, name: str, variables: Any, scorer: Scorer, step: int) -> dict[str, Any]:
        if self._is_finished(name, step):
            self.reused.append(name)
            return self._finished(name, step)
        started = time.perf_counter()
        setup, benchmark = self._options.benchmarks[name], self._read(name)
        protocol = protocol_of(setup.reader)
        with named_errors(name), self._shown(name, benchmark):
            self._encoder.prepare(variables, benchmark)
            options = open_vectors(protocol, setup.protocol_options)
            result = evaluators.evaluate(protocol, benchmark, scorer, **options)
            if self.workdir.is_writer:
                text_nulls.add(result, benchmark, self._nulls(name))
        row = evaluators.to_json(
            protocol,
            benchmark,
            result,
            reader=setup.reader,
            chosen=setup.protocol_options.get("protocol", ""),
            benchmark=self._folder(name).name,
            step=step,
            checkpoint={"init_from": self.setup.config["init_from"], "step": step},
            options=setup.options,
            reader_options=setup.reader_options,
            weights=self._weights,
            made_with=self._encoder.facts,
            seconds=time.perf_counter() - started,
        )
        if self.workdir.is_writer:
            write_result(self._folder(name), benchmark, result, row, self._options.examples)
        headline = row["metrics"][row["summary"][0]]
        self._say_finished(name, row["summary"][0], headline, row["seconds"])
        self.workdir.event(
            "evaluation",
            step=step,
            benchmark=row["benchmark"],
            value=headline["value"],
            folder=str((self._root / "evals").relative_to(self.workdir.path)),
        )
        return row

    @contextmanager
    def _shown(self, name: str, benchmark: Benchmark) -> Iterator[None]:
        """Context manager: the progress line of a benchmark, printed by one process."""
        if not self.workdir.is_writer:
            yield
            return
        images = [image for case in benchmark.cases for image in case.images]
        keys = {image if isinstance(image, str | Path) else id(image) for image in images}
        totals = {"images": len(keys), "texts": len(set(benchmark.texts))}
        if not all(self.setup.model.head.reads_pooled):
            # of protocols that score the images of a case with its captions
            totals["scores"] = sum(
                len(case.images) * len(case.captions) for case in benchmark.cases
            )
        progress = self._encoder.progress
        # in training the terminal has the line of the steps
        progress.begin(self._title(name), totals, is_overwritten=self.setup.training is None)
        try:
            yield
        finally:
            progress.end()

    def _say_finished(
        self, name: str, metric: str, headline: Mapping[str, Any], seconds: float
    ) -> None:
        is_short = self.setup.training is not None and seconds < SHORT
        if is_short or not self.workdir.is_writer:
            return
        value = headline["value"]
        number = f"{100 * value:.1f} %" if headline["unit"] == "fraction" else f"{value:.3f}"
        passed = datetime.timedelta(seconds=round(seconds))
        line = f"{self._title(name)}: {metric.replace('_', ' ')} {number}, {passed}"
        print(line, file=sys.stderr, flush=True)

    def _title(self, name: str) -> str:
        names = list(self._options.benchmarks)
        return f"set {names.index(name) + 1} of {len(names)}, {self._folder(name).name}"

    def _read(self, name: str) -> Benchmark:
        if name not in self._benchmarks:
            benchmark = self._options.benchmarks[name].read()
            has_slot = image_questions.SLOT in self._options.question
            benchmark = questions.ask(benchmark) if has_slot else benchmark
            self._benchmarks[name] = self._compared(name, benchmark)
        return self._benchmarks[name]

    @cached_property
    def _training_images(self) -> Iterable[Path]:
        return self._options.training_images()

    def _compared(self, name: str, benchmark: Benchmark) -> Benchmark:
        """The benchmark with a note if files of its images are among those of training."""
        images = (image for case in benchmark.cases for image in case.images)
        training = self._training_images
        count, shared = leaks.shared_files(training, images) if training else (0, 0)
        if not shared:
            return benchmark
        note = f"at least {shared:,} of {count:,} images are training images (equal files)"
        logging.warning("benchmark %s: %s; its results and the report note it", name, note)
        return dataclasses.replace(benchmark, notes=(*benchmark.notes, note))

    def _nulls(self, name: str) -> text_nulls.Credits:
        """Credits of a benchmark, for all steps; kept beside the features in config.eval.cache."""
        if name not in self._credits:
            folder = self._options.cache
            cache = Path(folder) / "nulls" if folder else None
            setup = self._options.benchmarks[name]
            self._credits[name] = text_nulls.case_credits(self._read(name), setup, cache)
        return self._credits[name]

    def _is_finished(self, name: str, step: int) -> bool:
        """True if every process sees the result, so that all processes compute it or none.

        A shared file system or object store may show a new file to some processes later.
        """
        return not sharding.any_process(self._finished(name, step) is None)

    def _finished(self, name: str, step: int) -> dict[str, Any] | None:
        return results.finished(self._folder(name), step, self._question(name))

    def _write_maps(self, variables: Any, scorer: Scorer, step: int) -> None:
        """Writes patch maps of the cases whose images are saved for the report.

        They are written before any result, so that a step with all results has all maps.
        Interpolated weights (WiSE-FT) get none, since they have no report.
        """
        if not self.setup.model.has_head or self._root != self.workdir.path:
            return
        cases = {
            self._folder(name) / "maps" / maps_file(case.id): case
            for name in self._options.benchmarks
            for case in self._read(name).cases[: self._options.examples]
        }
        encoder = self._encoder
        patch_maps.write(
            cases,
            step,
            scorer,
            partial(encoder.patch_maps, variables),
            partial(encoder.transform, rng=None),
            self.setup.tokenizer,
            self.workdir.is_writer,
        )

    def _folder(self, name: str) -> Path:
        if name not in self._folders:
            self._folders[name] = results.folder_of(self._root / "evals", self._question(name))
        return self._folders[name]

    def _question(self, name: str) -> results.Question:
        benchmark, data = self._options.benchmarks[name], self._read(name).version
        return results.Question(name, benchmark.reader, benchmark.options, data, self._weights)


def write_result(
    folder: Path, benchmark: Benchmark, result: EvalResult, row: dict[str, Any], examples: int
) -> None:
    """Writes a result into evals/<name>: scores of cases, images of the first ones, <step>.json."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    # str: a caption that is a Conversation is written as the files of records hold it
    rows = (json.dumps(example, default=str) for example in result.per_example)
    scores = "".join(f"{row}\n" for row in rows)
    workdir_files.replace(folder / f"{row['step']}.scores.jsonl", scores)
    for case in benchmark.cases[:examples]:
        for k, image in enumerate(case.images):
            path = workdir_files.without_link(folder / "images" / image_file(case.id, k))
            if not path.exists():
                Image.fromarray(image_ops.decode(image)).save(path)
    # last: a killed evaluation resumes at the first benchmark without this file
    write_json(folder / f"{row['step']}.json", row)


def open_vectors(protocol: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a protocol, its files of stored vectors opened (`Protocol.vector_files`).

    Raises UsageError for a missing file or one of another form.
    """
    opened = dict(options)
    for option in evaluators.PROTOCOLS[protocol].vector_files:
        if path := opened.pop(option, ""):
            try:
                opened[option] = TextVectors(path)
            except ValueError as error:
                raise UsageError(f"{option}: {error}") from error
    return opened


@contextmanager
def named_errors(name: str, reader: str = "", is_read: bool = False) -> Iterator[None]:
    """Context manager: adds the benchmark's name and download hint to a DataError.

    is_read: the annotations are there, so only a missing image has a hint, that of the images.
    """
    try:
        yield
    except DataError as error:
        hint = ""
        # the cause that image_ops leaves out of its message
        is_missing = isinstance(error.__context__, FileNotFoundError | NotADirectoryError)
        if reader in PUBLISHED and (is_missing or not is_read):
            origin = PUBLISHED[reader][1]
            how = origin.instruction(()) if is_read else origin.how_to_get
            hint = "" if how in str(error) else f"; {how}"
        raise DataError(f"benchmark {name}: {error}{hint}") from error

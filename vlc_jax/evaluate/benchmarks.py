"""Runs the configured benchmarks on parameters and writes what they found into the workdir."""

import copy
import hashlib
import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import jax
from PIL import Image

from vlc_jax import evaluators, models
from vlc_jax.devices import runtime, sharding
from vlc_jax.encode import text_encoders
from vlc_jax.encode.once import OnceEncoder
from vlc_jax.errors import PreemptedError, UsageError
from vlc_jax.evaluators import EvalResult, Scorer, patch_maps, questions
from vlc_jax.input_pipeline.benchmarks import PUBLISHED, Benchmark, protocol_of
from vlc_jax.input_pipeline.case import image_file, maps_file
from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.loader import questions as asked
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.tokenizers.text_vectors import TextVectors
from vlc_jax.models.parameters import fingerprint
from vlc_jax.run import results, workdir_files
from vlc_jax.run.processes.preemption import StopSignal
from vlc_jax.run.workdir import EVAL_FIELDS, Workdir, read_object, write_json
from vlc_jax.setup import init_from
from vlc_jax.types.setup import Setup


class Evaluation:
    """The configured benchmarks, read once and run as often as there are states to evaluate.

    Args:
      setup: of the run; `setup.evaluation` names the benchmarks.
      workdir: results go to evals/<name>/<step>.json and <step>.scores.jsonl (run/results.py says
        which name), `evals` being in the workdir or, if `into` is given, in that folder of it;
        images/ and maps/ beside them are for the report (vlc_jax/evaluators/patch_maps.py).
      stop: looked at between batches, and by a single process while one is read; when any process
        was asked to stop, all of them raise PreemptedError. Finished benchmarks stay on disk and
        are not computed again.
      weights: fingerprint of parameters that are not of a step of this workdir.
    """

    def __init__(
        self, setup: Setup, workdir: Workdir, stop: StopSignal, weights: str | None = None
    ):
        self.setup, self.workdir, self.stop = setup, workdir, stop
        self._weights = weights
        self._folders: dict[str, Path] = {}
        self.kept: list[str] = []  # benchmarks whose results were there already
        self._options = setup.evaluation
        self._root = workdir.path
        self._benchmarks: dict[str, Benchmark] = {}
        self._encoder = OnceEncoder(setup, self._check_stop, stop.interrupt, workdir.is_writer)

    def read(self) -> None:
        """Opens every benchmark and decodes its first pictures: a wrong option, a missing file, a
        damaged picture or a text without a vector shows before training.
        """
        tokenizer = self.setup.tokenizer
        for name in self._options.benchmarks:
            with of_benchmark(name, self._options.benchmarks[name].reader):
                benchmark = self._read(name)
                for case in benchmark.cases[: self._options.preview]:
                    for image in case.images:
                        self._encoder.transform(image, None)
                if isinstance(tokenizer, TextVectors):
                    tokenizer.require(benchmark.texts)

    def into(self, folder: str) -> "Evaluation":
        """The same, with its results in that folder of the workdir."""
        # shallow: it shares the benchmarks and the encoder, but folders belong to a root
        other = copy.copy(self)
        other._root, other._folders = self.workdir.path / folder, {}
        return other

    def run(self, variables: Any, step: int, seconds: float | None = None) -> list[dict[str, Any]]:
        """The results of every benchmark for `variables` at `step`, as in their JSON files.

        Those that are on disk are kept. seconds: after which no further benchmark is begun; those
        that are left are named in an event.
        """
        begun, rows, left = time.monotonic(), [], []
        scorer = self._encoder.scorer(variables)
        if not self.is_complete(step):
            self._write_maps(variables, scorer, step)
        for name in self._options.benchmarks:
            is_late = seconds is not None and time.monotonic() - begun >= seconds
            # clocks differ, and a benchmark is a collective: all processes leave it, or none
            if sharding.any_process(is_late) and not self._is_finished(name, step):
                left.append(name)
            else:
                rows.append(self._one(name, variables, scorer, step))
        if left:
            self.workdir.event("evaluation_left", step=step, seconds=seconds, benchmarks=left)
        return rows

    def forget_after(self, step: int) -> None:
        """Removes results of later steps: a run that goes on from `step` makes them anew."""
        for path in (self.workdir.path / "evals").glob("*/*.json*"):
            name = path.name.split(".")[0]
            if self.workdir.owns_files and name.isdecimal() and int(name) > step:
                path.unlink()

    def is_complete(self, step: int) -> bool:
        """True if all results of a step are on disk."""
        return all(self._is_finished(name, step) for name in self._options.benchmarks)

    def publish(self, step: int) -> None:
        """Prints the result table of a step that is complete, and writes the report."""
        from vlc_jax import report  # templates and plots, which training does not need

        if self.workdir.is_writer:
            report.print_table([self._finished(name, step) for name in self._options.benchmarks])
            for name in self._options.benchmarks:
                if (filed := self._folder(name)).name != name:
                    print(f"{filed.name}: evals/{name} keeps what was asked before of {name!r}")
            print(f"report: {self.workdir.shown(report.write(self.workdir.path))}")

    def _one(self, name: str, variables: Any, scorer: Scorer, step: int) -> dict[str, Any]:
        if self._is_finished(name, step):
            self.kept.append(name)
            return self._finished(name, step)
        started = time.perf_counter()
        setup, benchmark = self._options.benchmarks[name], self._read(name)
        protocol = protocol_of(setup.reader)
        with of_benchmark(name):
            self._encoder.prepare(variables, benchmark)
            options = open_vectors(protocol, setup.protocol_options)
            result = evaluators.evaluate(protocol, benchmark, scorer, **options)
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
            self._write(name, benchmark, result, row)
        headline = row["metrics"][row["summary"][0]]
        where = str((self._root / "evals").relative_to(self.workdir.path))
        self.workdir.event(
            *("evaluation",),
            step=step,
            benchmark=row["benchmark"],
            value=headline["value"],
            folder=where,
        )
        return row

    def _read(self, name: str) -> Benchmark:
        if name not in self._benchmarks:
            read = self._options.benchmarks[name].read()
            is_asked = asked.SLOT in self._options.question
            self._benchmarks[name] = questions.ask(read) if is_asked else read
        return self._benchmarks[name]

    def _is_finished(self, name: str, step: int) -> bool:
        """True if every process sees the result: all of them compute it, or none does, although a
        file system or a store may show a new file to some of them later."""
        return not sharding.any_process(self._finished(name, step) is None)

    def _finished(self, name: str, step: int) -> dict[str, Any] | None:
        return results.finished(self._folder(name), step, self._question(name))

    def _write(self, name: str, benchmark: Benchmark, result: EvalResult, row: dict) -> None:
        folder = self._folder(name)
        (folder / "images").mkdir(parents=True, exist_ok=True)
        scores = "".join(json.dumps(example) + "\n" for example in result.per_example)
        workdir_files.replace(folder / f"{row['step']}.scores.jsonl", scores)
        for case in benchmark.cases[: self._options.examples]:
            for k, image in enumerate(case.images):
                path = workdir_files.without_link(folder / "images" / image_file(case.id, k))
                if not path.exists():
                    Image.fromarray(image_ops.decode(image)).save(path)
        # last: a killed evaluation goes on at the first benchmark without it
        write_json(folder / f"{row['step']}.json", row)

    def _write_maps(self, variables: Any, scorer: Scorer, step: int) -> None:
        """Writes patch maps of the cases whose images are kept; before any result, so that a step
        with all results has all of them. Mixtures of weights have no report of their own."""
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
        asked = self._options.benchmarks[name]
        data = self._read(name).version
        return results.Question(name, asked.reader, asked.options, data, self._weights)

    def _check_stop(self) -> None:
        if sharding.any_process(self.stop.is_set):
            raise PreemptedError(self.stop.name or "another process")


def evaluate_workdir(setup: Setup, workdir: Workdir, stop: StopSignal, allow_change: bool) -> None:
    """`--mode eval`: the configured benchmarks on the latest valid checkpoint of a workdir, or on
    the weights of config.init_from.
    """
    mixture = setup.evaluation.interpolation
    workdir.check_config(setup.config, allow_change, fields=EVAL_FIELDS)
    latest = init_from.load_latest(setup, workdir.path, workdir.event)
    imported = None if latest.trained is not None else _identity(setup, latest.params)
    text_encoders.encode_others(setup.tokenizer)
    evaluation = Evaluation(setup, workdir, stop, imported)
    stop.interrupt(evaluation.read)  # before the claim: a wrong option leaves no config.json
    if not (workdir.path / "config.json").exists():  # imported weights, never trained here
        unmixed = {"other": None, "alpha": mixture.shares}
        workdir.claim({**setup.config, "interpolate": unmixed})
        counts = models.parameter_counts(latest.params)
        workdir.write_env(hardware=runtime.hardware(), parameters=counts, input={})
    if mixture.other:
        evaluate_wise_ft(setup, workdir, evaluation, latest.variables, latest.step)
    else:
        evaluation.run(latest.variables, latest.step)
        evaluation.publish(latest.step)
        if evaluation.kept and workdir.is_writer:
            print(f"{', '.join(evaluation.kept)}: kept from before; delete a file to make it again")


def _identity(setup: Setup, params: Any) -> str:
    """Fingerprint of parameters, and of what else their scores depend on: a workdir without
    checkpoints may be asked again with other pixels or another tokenizer."""
    pixels = (setup.evaluation.transform, setup.config["input"]["normalisation"])
    other = (setup.model, *pixels, setup.evaluation.question, setup.tokenizer.fingerprint)
    return f"{fingerprint(params)}-{hashlib.sha256(repr(other).encode()).hexdigest()[:8]}"


def evaluate_wise_ft(
    setup: Setup, workdir: Workdir, evaluation: Evaluation, variables: Any, step: int
) -> None:
    """Every benchmark on (1 - alpha) other + alpha `variables`, for each alpha of the config.

    WiSE-FT (Wortsman et al. 2022, equation 1), with the results of each alpha in a folder
    interpolate/<alpha> of the workdir. mixed.json there says of what they are mixtures; those of
    other weights or of an earlier step are removed first.
    """
    from vlc_jax import report

    mixture = setup.evaluation.interpolation
    other = {
        "params": init_from.load_complete(setup, mixture.other),
        "batch_stats": init_from.load_batch_stats(setup, mixture.other),
    }
    facts = {"other": str(mixture.other), "weights": fingerprint(other), "step": step}
    folder = workdir.path / "interpolate"
    if workdir.is_writer:
        _start_mixture(folder, facts)
    mix = jax.jit(
        lambda share, *trees: jax.tree.map(lambda a, b: (1 - share) * a + share * b, *trees)
    )
    names = {f"{share:g}": share for share in mixture.shares}
    for name, share in names.items():
        mixed = evaluation.into(f"interpolate/{name}")
        mixed.run(mix(share, other, variables), step)
    if workdir.is_writer:
        for earlier in folder.iterdir():
            if earlier.is_dir() and earlier.name not in names:
                shutil.rmtree(earlier)
        report.print_mixtures(workdir.path)
        print(f"report: {workdir.shown(report.write(workdir.path))}")


def _start_mixture(folder: Path, facts: dict[str, Any]) -> None:
    """An empty `folder` with its mixed.json, unless it has the results of the same mixture."""
    file = folder / "mixed.json"
    if file.exists() and read_object(file) == facts:
        return
    if folder.exists():
        print(f"{folder} has mixtures of other weights or of another step: they are replaced")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    write_json(file, facts)


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
def of_benchmark(name: str, reader: str = "") -> Iterator[None]:
    """Says of a DataError which benchmark it is about, and where a published one comes from."""
    try:
        yield
    except DataError as error:
        hint = ""
        if reader in PUBLISHED and (how := PUBLISHED[reader][1].how_to_get) not in str(error):
            hint = f"; {how}"
        raise DataError(f"benchmark {name}: {error}{hint}") from error

"""Runs the configured benchmarks on parameters and writes what they found into the workdir."""

import copy
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from ml_collections import ConfigDict
from PIL import Image

from input_pipeline import TextVectors, benchmarks, tokenize
from input_pipeline import image as image_ops
from input_pipeline.benchmarks import Benchmark
from input_pipeline.record import DataError, ImageLike
from vlc_jax import build, evaluators, models, pretrained, report, sharding
from vlc_jax.errors import PreemptedError, UsageError, known
from vlc_jax.evaluators import EvalResult, Scorer, patch_maps
from vlc_jax.report.read_workdir import image_file, maps_file
from vlc_jax.run.preemption import StopSignal
from vlc_jax.run.workdir import EVAL_FIELDS, Workdir, write_json
from vlc_jax.types import ImageFeatures, TextFeatures

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of WiSE-FT, where the config names none


class Evaluation:
    """The configured benchmarks, read once and judged as often as there are states to judge.

    Args:
      config: of the run; `config.evals` names the benchmarks.
      task: mesh, tokenizer, model and normalisation of the run.
      workdir: results go to evals/<benchmark>/<step>.json and <step>.scores.jsonl, `evals` being
        in the workdir or, if `into` is given, in that folder of it; images/ and maps/ beside them
        are for the report (vlc_jax/evaluators/patch_maps.py).
      stop: looked at between batches; when any process was asked to stop, all of them raise
        PreemptedError. Finished benchmarks stay on disk and are not computed again.
    """

    def __init__(self, config: ConfigDict, task: build.Task, workdir: Workdir, stop: StopSignal):
        self.config, self.task, self.workdir, self.stop = config, task, workdir, stop
        self._root = workdir.path
        self._benchmarks: dict[str, Benchmark] = {}
        for name in config.evals:
            evaluators.protocol(name)  # a misspelt name is found before hours of training
        self._functions = _Functions(
            task,
            build.image_transform(config, is_training=False),
            config.eval.batch_size,
            self._check_stop,
        )

    def read(self) -> None:
        """Opens every benchmark and decodes its first pictures: a wrong option, a missing file, a
        damaged picture or a text without a vector shows before training.
        """
        tokenizer = self.task.tokenizer
        for name in self.config.evals:
            benchmark = self._read(name)
            with of_benchmark(name):
                for case in benchmark.cases[: self.config.input.preview]:
                    for image in case.images:
                        self._functions.transform(image, None)
                if isinstance(tokenizer, TextVectors):
                    tokenizer.require(benchmark.texts)

    def into(self, folder: str) -> "Evaluation":
        """The same, with its results in that folder of the workdir."""
        other = copy.copy(self)
        other._root = self.workdir.path / folder
        return other

    def run(self, params: Any, step: int, *, is_fresh: bool = False) -> list[dict[str, Any]]:
        """The results of every benchmark for `params` at `step`, as in their JSON files.

        Results that are on disk are kept unless `is_fresh`.
        """
        scorer = self._functions.scorer(params)
        if is_fresh or not self.is_complete(step):
            self._write_maps(params, scorer, step)
        return [self._one(name, scorer, step, is_fresh) for name in self.config.evals]

    def forget_after(self, step: int) -> None:
        """Removes results of later steps: a run that goes on from `step` makes them anew."""
        for path in (self.workdir.path / "evals").glob("*/*.json*"):
            if self.workdir.is_writer and int(path.name.split(".")[0]) > step:
                path.unlink()

    def is_complete(self, step: int) -> bool:
        """Whether all results of a step are on disk."""
        return all(self._finished(name, step) is not None for name in self.config.evals)

    def publish(self, step: int) -> None:
        """Prints the result table of a step that is complete, and writes the report."""
        if self.workdir.is_writer:
            report.print_table([self._finished(name, step) for name in self.config.evals])
            print(f"report: {report.write(self.workdir.path)}")

    def _one(self, name: str, scorer: Scorer, step: int, is_fresh: bool) -> dict[str, Any]:
        done = None if is_fresh else self._finished(name, step)
        if done is not None:
            return done
        started = time.perf_counter()
        options = self.config.evals[name].to_dict()
        known = evaluators.protocol_options(name)
        benchmark = self._read(name)
        with of_benchmark(name):
            result = evaluators.evaluate(
                name, benchmark, scorer, **{k: v for k, v in options.items() if k in known}
            )
        row = evaluators.to_json(
            name,
            benchmark,
            result,
            step=step,
            options=options,
            seconds=time.perf_counter() - started,
        )
        if self.workdir.is_writer:
            self._write(name, benchmark, result, row)
        headline = row["metrics"][evaluators.headline(name)]
        where = str((self._root / "evals").relative_to(self.workdir.path))
        self.workdir.event(
            "evaluation", step=step, benchmark=name, value=headline["value"], folder=where
        )
        return row

    def _read(self, name: str) -> Benchmark:
        if name not in self._benchmarks:
            self._benchmarks[name] = read_benchmark(self.config, name)
        return self._benchmarks[name]

    def _finished(self, name: str, step: int) -> dict[str, Any] | None:
        path = self._folder(name) / f"{step}.json"
        if not path.exists():
            return None
        row = json.loads(path.read_text())
        wanted = json.loads(json.dumps(self.config.evals[name].to_dict()))
        return row if row["options"] == wanted else None

    def _write(self, name: str, benchmark: Benchmark, result: EvalResult, row: dict) -> None:
        folder = self._folder(name)
        (folder / "images").mkdir(parents=True, exist_ok=True)
        with (folder / f"{row['step']}.scores.jsonl").open("w") as file:
            file.writelines(json.dumps(example) + "\n" for example in result.per_example)
        for case in benchmark.cases[: self.config.eval.examples]:
            for k, image in enumerate(case.images):
                path = folder / "images" / image_file(case.id, k)
                if not path.exists():
                    Image.fromarray(image_ops.decode(image)).save(path)
        write_json(folder / f"{row['step']}.json", row)

    def _write_maps(self, params: Any, scorer: Scorer, step: int) -> None:
        """What the head sees of the cases whose images are kept; before any result, so that a step
        with all results has all of them. Mixtures of weights have no report of their own."""
        if not self.task.model.has_head or self._root != self.workdir.path:
            return
        cases = {
            self._folder(name) / "maps" / maps_file(case.id): case
            for name in self.config.evals
            for case in self._read(name).cases[: self.config.eval.examples]
        }
        functions = self._functions
        patch_maps.write(
            cases,
            step,
            scorer,
            partial(functions.patch_maps, params),
            partial(functions.transform, rng=None),
            self.task.tokenizer,
            self.workdir.is_writer,
        )

    def _folder(self, name: str) -> Path:
        return self._root / "evals" / name

    def _check_stop(self) -> None:
        if sharding.any_process(self.stop.is_set):
            raise PreemptedError(self.stop.name or "another process")


def read_benchmark(config: ConfigDict, name: str) -> Benchmark:
    """The cases of a benchmark of config.evals. Raises UsageError for a wrong option."""
    known = evaluators.protocol_options(name)
    options = {k: v for k, v in config.evals[name].items() if k not in known}
    if benchmarks.reads_source(name) and "source" not in options:
        options = {**build.source_options(config), **options}
    try:
        return benchmarks.READERS[name](**options)
    except (TypeError, ValueError) as error:
        raise UsageError(f"config.evals.{name}: {error}") from error


class _Functions:
    """Compiled towers and scores, from pictures and strings to numpy, in batches of one size."""

    def __init__(
        self,
        task: build.Task,
        transform: image_ops.ImageTransform,
        batch_size: int,
        before_batch: Callable[[], None],
    ):
        self.task, self.transform, self.before_batch = task, transform, before_batch
        devices = task.mesh.size
        self.batch_size = -(-batch_size // devices) * devices
        model, everywhere = task.model, sharding.replicated(task.mesh)

        def apply(method: Callable[..., Any], params: Any, *inputs: Any) -> Any:
            return nn.apply(method, model)({"params": params}, *inputs)

        def jit(method: Callable[..., Any]) -> Callable[..., Any]:
            compiled = jax.jit(lambda *args: apply(method, *args), out_shardings=everywhere)

            def call(*args: Any) -> Any:
                with jax.set_mesh(task.mesh):
                    return compiled(*args)

            return call

        self.encode_image = jit(lambda m, rows: m.encode_image(task.normalise(rows["image"])))
        self.encode_text = jit(lambda m, rows: m.encode_text(rows["text"], rows.get("text_marks")))
        self.score = jit(lambda m, image, text: m.score(image, text))
        self.score_options = jit(lambda m, image, text: m.score_options(image, text))
        self.patch_maps = jit(lambda m, image, text: m.patch_maps(image, text))

    def scorer(self, params: Any) -> Scorer:
        def embed_images(images: Sequence[ImageLike]) -> ImageFeatures:
            with ThreadPoolExecutor(max_workers=8) as pool:  # decoding releases the GIL

                def load(chunk: Sequence[ImageLike]) -> dict[str, np.ndarray]:
                    pixels = list(pool.map(lambda image: self.transform(image, None), chunk))
                    return {"image": np.stack(pixels)}

                return self._embed(self.encode_image, params, images, load)

        def embed_texts(texts: Sequence[str]) -> TextFeatures:
            load = partial(tokenize, self.task.tokenizer)
            return self._embed(self.encode_text, params, texts, load)

        def score(image: ImageFeatures, text: TextFeatures) -> np.ndarray:
            return np.asarray(self.score(params, image, text))

        def score_options(image: ImageFeatures, text: TextFeatures) -> np.ndarray:
            return np.asarray(self.score_options(params, image, text))

        return Scorer(embed_images, embed_texts, score, score_options)

    def _embed(
        self,
        encode: Callable[..., Any],
        params: Any,
        items: Sequence[Any],
        load: Callable[[Sequence[Any]], dict[str, np.ndarray]],
    ) -> Any:
        """Features of all items; each process loads its own rows of every batch."""
        local = self.batch_size // jax.process_count()
        features = []
        for start in range(0, len(items), self.batch_size):
            self.before_batch()
            count = min(self.batch_size, len(items) - start)
            first = start + jax.process_index() * local
            rows = [items[min(first + i, len(items) - 1)] for i in range(local)]
            out = encode(params, sharding.put_batch(self.task.mesh, load(rows)))
            features.append(jax.tree.map(lambda x, n=count: np.asarray(x)[:n], out))
        return jax.tree.map(lambda *parts: np.concatenate(parts), *features)


def evaluate_workdir(
    config: ConfigDict, workdir: Workdir, stop: StopSignal, allow_change: bool
) -> None:
    """`--mode eval`: the configured benchmarks on what `pretrained.newest` finds."""
    shares = mixture_shares(config)
    workdir.check_config(config.to_dict(), allow_change, fields=EVAL_FIELDS)
    task = build.task(config)
    params, step, _ = pretrained.newest(config, task, workdir.path, workdir.event)
    evaluation = Evaluation(config, task, workdir, stop)
    evaluation.read()
    if not (workdir.path / "config.json").exists():  # imported weights, never trained here
        workdir.claim({**config.to_dict(), "interpolate": {"other": None, "alpha": shares}})
        workdir.write_env(parameters=models.parameter_counts(params), input={})
    if config.interpolate.get("other"):
        interpolate(config, task, workdir, evaluation, params, step)
    else:
        evaluation.run(params, step, is_fresh=True)
        evaluation.publish(step)


def mixture_shares(config: ConfigDict) -> tuple[float, ...]:
    """config.interpolate.alpha. Raises UsageError for what are no shares."""
    for name in config.interpolate:
        known("field of config.interpolate", name, ("other", "alpha"))
    shares = config.interpolate.get("alpha", SHARES)
    is_list = isinstance(shares, tuple | list) and len(shares) > 0
    if not is_list or not all(isinstance(x, int | float) and 0 <= x <= 1 for x in shares):
        raise UsageError(f"config.interpolate.alpha lists shares from 0 to 1; got {shares!r}")
    return tuple(shares)


def interpolate(
    config: ConfigDict,
    task: build.Task,
    workdir: Workdir,
    evaluation: Evaluation,
    params: Any,
    step: int,
) -> None:
    """Every benchmark on (1 - alpha) other + alpha `params`, for each alpha of the config.

    WiSE-FT (Wortsman et al. 2022, equation 1), with the results of each alpha in a folder
    interpolate/<alpha> of the workdir. Earlier results there are replaced.
    """
    source = config.interpolate.other
    shapes = build.state_shapes(task.mesh, build.init_params(config, task.model))
    other = pretrained.imported(config, task, shapes, source)
    pretrained.require_all(other, shapes, source)
    other = sharding.put_like(other, shapes)
    mix = jax.jit(
        lambda share, *trees: jax.tree.map(lambda a, b: (1 - share) * a + share * b, *trees)
    )
    names = {f"{share:g}": share for share in mixture_shares(config)}
    for name, share in names.items():
        judged = evaluation.into(f"interpolate/{name}")
        judged.run(mix(share, other, params), step, is_fresh=True)
    if workdir.is_writer:
        for earlier in (workdir.path / "interpolate").iterdir():
            if earlier.is_dir() and earlier.name not in names:
                shutil.rmtree(earlier)
        facts = {"other": str(source), "step": step}
        write_json(workdir.path / "interpolate" / "mixed.json", facts)
        report.print_mixtures(workdir.path)
        print(f"report: {report.write(workdir.path)}")


@contextmanager
def of_benchmark(name: str) -> Iterator[None]:
    """Says of a DataError which benchmark it is about."""
    try:
        yield
    except DataError as error:
        raise DataError(f"benchmark {name}: {error}") from error

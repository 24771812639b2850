"""`vlc_jax.evaluate`: benchmarks on any model, ours or of another library, into a folder.

The folder is read by `vlc-jax report` and `vlc-jax scores` like the workdir of a run.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from vlc_jax import evaluators
from vlc_jax.encode.inference import Model
from vlc_jax.errors import UsageError, allow, known
from vlc_jax.evaluation import foreign_models
from vlc_jax.evaluation.benchmarks import Evaluation
from vlc_jax.evaluators import Abilities, Scorer, foreign
from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.benchmarks import PUBLISHED, READERS, protocol_of
from vlc_jax.input_pipeline.case import Benchmark
from vlc_jax.run import workdir_files
from vlc_jax.run.environment import environment
from vlc_jax.run.processes.preemption import StopSignal
from vlc_jax.run.workdir import Workdir, read_object, write_json
from vlc_jax.setup import data
from vlc_jax.setup.model import abilities
from vlc_jax.setup.validate import check_benchmark_name
from vlc_jax.types.setup import BenchmarkSetup


class Results(dict[str, dict[str, Any]]):
    """Benchmark -> its result, the content of WORKDIR/evals/NAME/0.json.

    `results["sugarcrepe"]["metrics"]["accuracy"]` has value, low and high (95 % interval), chance,
    count and ties, and scores without the image, blind and ceiling (evaluation/text_nulls.py);
    "accuracy/subset=swap_obj" is a subset's, "grounded_accuracy" that of cases that the texts do
    not give away. "summary" lists the metrics of tables, the headline first.
    """

    def print(self, published: str = "") -> None:
        """Prints a table; `published`: a model whose published values appear next to these."""
        # here: templates and plots are not needed for the numbers
        from vlc_jax import report

        report.print_table(self.values(), published)


def evaluate(
    model: Any,
    benchmarks: str | Sequence[str] | Mapping[str, Mapping[str, Any]],
    *,
    workdir: str | os.PathLike[str],
    root: str | os.PathLike[str] | None = None,
    name: str = "",
    batch_size: int | None = None,
    examples: int = 6,
    **options: Any,
) -> Results:
    """Evaluates a model on benchmarks; the same call again continues an interrupted one.

        results = vlc_jax.evaluate(score, "sugarcrepe", root="sets", workdir="evals/mine")
        results["sugarcrepe"]["metrics"]["accuracy"]["value"]

    model: of `vlc_jax.load`; a function score(images, texts) -> (images, texts) of any library, or
      an object with embed_images(images) and embed_texts(texts), which get Pillow's pictures
      (vlc_jax/evaluators/foreign.py); a Scorer (vlc_jax/evaluators/scorer.py); or, for one
      benchmark, scores that exist: case id -> scores (vlc_jax/evaluators/score_table.py).
    benchmarks: one name or several, or name -> options of each, as in config.evals.
    workdir: a folder of its own for each model. Results in it are kept and not computed again.
    root: folder of the published sets.
    name: of the model, in the results. Without one, a scorer of another library must repeat the
      scores of an image with two texts that the workdir has from its first call (probe.json),
      whatever the benchmark; a name is trusted.
    batch_size: images per call (`foreign.scorer`), or per forward pass of a model of ours.
    examples: cases per benchmark whose images are kept for the report.
    options: of the reader and the protocol of every benchmark: count=100 (the first cases, of each
      subset if a set has subsets), tie="half".

    Raises:
      UsageError: an unknown benchmark or option, a benchmark that needs more than the model has, a
        workdir of something else or in use, results of a scorer that are no finite numbers.
      DataError: missing or damaged files.
    """
    setups, folder = _setups(benchmarks, root, options), _folder(workdir)
    has = _abilities(model, batch_size)
    for each, setup in setups.items():
        try:
            evaluators.check(protocol_of(setup.reader), setup.options, has)
        except UsageError as error:
            raise UsageError(f"benchmark {each}: {error}") from error
    if isinstance(model, Mapping) and len(setups) > 1:
        raise UsageError(f"a table of scores is of one benchmark; got {', '.join(setups)}")
    read = {each: foreign_models.read(each, setup) for each, setup in setups.items()}
    if isinstance(model, Model):
        setups = {
            each: setup._replace(read=partial(read.get, each)) for each, setup in setups.items()
        }
        return _evaluate_model(model, setups, folder, name, batch_size, examples)
    return _evaluate_others(model, setups, read, folder, name, batch_size, examples)


def _evaluate_others(
    model: Any,
    setups: Mapping[str, BenchmarkSetup],
    read: Mapping[str, Benchmark],
    folder: Path,
    name: str,
    batch_size: int | None,
    examples: int,
) -> Results:
    """A scorer of another library, or a table of its scores."""
    scorer, done = name or _name(model), Results()
    folder.mkdir(parents=True, exist_ok=True)
    # a second call at the same time would write into the same files
    lock = workdir_files.lock(folder)
    try:
        _claim(folder, {"name": scorer})
        if not name and not isinstance(model, Mapping):
            foreign_models.check_scorer(folder, model, read.values(), batch_size)
        for each, benchmark in read.items():
            task = foreign_models.Task(each, setups[each], benchmark, folder, scorer, examples)
            if isinstance(model, Mapping):
                done[each] = foreign_models.evaluate_table(task, model)
            else:
                done[each] = foreign_models.evaluate_scorer(task, model, batch_size)
    finally:
        workdir_files.unlock(lock)
    return done


def _evaluate_model(
    model: Model,
    setups: Mapping[str, BenchmarkSetup],
    folder: Path,
    name: str,
    batch_size: int | None,
    examples: int,
) -> Results:
    """A model of ours, as --mode eval evaluates it."""
    evaluation = model._setup.evaluation._replace(
        benchmarks=setups, batch_size=batch_size or model._batch_size, examples=examples
    )
    model_config = model.config["model"]
    name = name or f"{model_config['name']} {model_config['variant']}"
    with closing(Workdir(folder)) as workdir:
        _claim(folder, {"name": name, "fingerprint": model.fingerprint})
        setup = model._setup._replace(evaluation=evaluation)
        benchmarks = Evaluation(setup, workdir, StopSignal(), model.fingerprint)
        benchmarks.read()
        rows = benchmarks.run(model._variables, foreign_models.STEP)
    return Results(zip(setups, rows, strict=True))


def _abilities(model: Any, batch_size: int | None) -> Abilities | None:
    """Abilities of a model; None for a table. Raises UsageError for anything else."""
    if isinstance(model, Mapping):
        return None
    if isinstance(model, Model):
        return abilities(model._setup.model, model._setup.tokenizer)
    return foreign.scorer(model, {}, batch_size).abilities


def _setups(
    benchmarks: Any, root: str | os.PathLike[str] | None, options: Mapping[str, Any]
) -> dict[str, BenchmarkSetup]:
    """Name -> benchmark, from the arguments of `evaluate`."""
    if isinstance(benchmarks, str):
        benchmarks = [benchmarks]
    if not isinstance(benchmarks, Mapping):
        benchmarks = {name: {} for name in benchmarks}
    if not benchmarks:
        raise UsageError("benchmarks are one name or several; got none")
    allow(repr(benchmarks))
    setups, has_root = {}, False
    for name, own in benchmarks.items():
        check_benchmark_name(name)
        given = {
            key: str(value) if isinstance(value, os.PathLike) else value
            for key, value in {**options, **own}.items()
        }
        reader = known("benchmark", given.get("reader", name), READERS)
        if root is not None and reader in PUBLISHED:
            given, has_root = {"root": str(root), **given}, True
        setups[name] = data.benchmark(f"benchmark {name}", name, given)
    if root is not None and not has_root:
        raise UsageError(f"root is the folder of published sets; {', '.join(setups)} reads none")
    return setups


def _folder(workdir: str | os.PathLike[str]) -> Path:
    """The absolute path of a folder for results. Raises UsageError for one of something else."""
    if stores.is_url(workdir):
        raise UsageError(f"evaluate writes into a local folder; got {workdir}")
    folder = Path(workdir).absolute()
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"workdir is a folder; {folder} is a file")
    # a call that has just begun, or died at once, leaves these
    begun = {"lock", "logs"}
    is_other = folder.is_dir() and not begun.issuperset(each.name for each in folder.iterdir())
    if is_other and "scorer" not in _facts(folder):
        kind = "the workdir of a run" if (folder / "config.json").exists() else "of something else"
        raise UsageError(f"{folder} is {kind}: choose an empty or new folder for results")
    return folder


def _claim(folder: Path, scorer: Mapping[str, str]) -> None:
    """Writes the model into env.json. Raises UsageError if the folder is another model's."""
    saved = _facts(folder).get("scorer")
    if saved is None:
        write_json(folder / "env.json", {**environment(), "scorer": scorer})
    elif saved != scorer:
        raise UsageError(
            f"{folder} has results of {saved}, not of {scorer}: choose another workdir"
        )


def _facts(folder: Path) -> dict[str, Any]:
    path = folder / "env.json"
    return read_object(path) if path.exists() else {}


def _name(model: Any) -> str:
    if isinstance(model, Mapping):
        return "a table of scores"
    if isinstance(model, Scorer):
        return "a Scorer"
    named = model if hasattr(model, "__qualname__") else type(model)
    return f"{named.__module__}.{named.__qualname__}".removeprefix("__main__.")

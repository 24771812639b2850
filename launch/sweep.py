"""A grid over fields of a config. Each trial is a separate run.

  python launch/sweep.py --out DIR --config FILE --grid NAME VALUE VALUE [--grid ...] [--config.F=V]

NAME is a config field without `--config.`. Trial N is the run in DIR/trial_N, with its output in
log.txt. The same command resumes a sweep.

--jobs N runs N trials at a time on this machine, each on its share of the cores and of the GPUs in
CUDA_VISIBLE_DEVICES, and restarts a trial after 30, 31 or 75 (launch/supervise.sh). --task I runs
trial I, for task I of an array job; all tasks need DIR on a shared file system.

Exit codes: 0 done; 75 stopped by a signal; else 1, or with --task the code of the trial.
"""

import argparse
import itertools
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, from any folder

from launch import scheduler  # noqa: E402
from vlc_jax.errors import ExitCode, UsageError, known  # noqa: E402
from vlc_jax.input_pipeline import stores  # noqa: E402
from vlc_jax.report import read_workdir  # noqa: E402

REQUEST = "sweep.json"  # settings of a sweep, in its folder
RESTARTED = (ExitCode.INFRASTRUCTURE, ExitCode.HANG, ExitCode.PREEMPTED)


class Trial(NamedTuple):
    """A run: its number in the sweep, and the values of the swept fields."""

    number: int
    values: dict[str, str]


def grid(fields: Sequence[Sequence[str]], task: int | None) -> list[Trial]:
    """All combinations of the values; the last field varies fastest.

    fields: [name, values...] each.   task: number of the only trial; None: all of them.
    """
    names = [name for name, *_ in fields]
    rows = itertools.product(*[values for _, *values in fields])
    trials = [Trial(i, dict(zip(names, row, strict=True))) for i, row in enumerate(rows)]
    if task is not None and not 0 <= task < len(trials):
        raise UsageError(
            f"--task {task} of a grid of {len(trials)} trials; use 0 to {len(trials) - 1}"
        )
    return trials if task is None else [trials[task]]


class Sweep:
    """Runs trials, several at a time."""

    def __init__(self, args: argparse.Namespace, more: list[str], trials: list[Trial]):
        self.args, self.more = args, more
        self.codes: dict[int, int] = {}
        parts = scheduler.shares(args.jobs)
        self.scheduler = scheduler.Scheduler(
            parts, lambda: trials.pop(0) if trials else None, self._run, self._finish
        )

    def run(self) -> int:
        """Runs all trials; returns the exit code."""
        self.scheduler.run()
        if self.scheduler.is_stopped:
            print("stopped; the same command resumes", file=sys.stderr)
            return ExitCode.PREEMPTED
        failed = [code for code in self.codes.values() if code]
        if not failed:
            return ExitCode.DONE
        return failed[0] if self.args.task is not None else 1

    def _run(self, trial: Trial, share: scheduler.Share) -> int:
        folder = folder_of(trial, self.args.out)
        if (folder / "DONE").exists():
            return ExitCode.DONE
        words = command(trial, self.args, self.more)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return self.scheduler.process(words, ROOT, folder / "log.txt", share)
        except OSError as error:  # a full disk, a folder that cannot be written
            print(f"{folder}: {error}", file=sys.stderr)
            return ExitCode.INFRASTRUCTURE

    def _finish(self, trial: Trial, code: int) -> None:
        folder, value = folder_of(trial, self.args.out), None
        if code == ExitCode.DONE and self.args.metric:
            try:
                value = metric(folder, self.args.metric)
            except UsageError as error:
                print(f"{folder}: {error}", file=sys.stderr)
                code = ExitCode.USAGE
        self.codes[trial.number] = code
        outcome = "done"
        if code in RESTARTED:
            outcome = f"ended with {code}; the same command resumes it"
        elif code != ExitCode.DONE:
            outcome = f"FAILED with {code}, see {folder}/log.txt"
        if value is not None:
            outcome += f", {self.args.metric} {value:.4f}"
        print(f"{folder.name} {setting(trial)}: {outcome}", flush=True)


def folder_of(trial: Trial, out: Path) -> Path:
    """The workdir of a trial."""
    return out / f"trial_{trial.number:03d}"


def setting(trial: Trial) -> str:
    """The values of a trial as one line."""
    return " ".join(f"{name}={value}" for name, value in trial.values.items())


def command(trial: Trial, args: argparse.Namespace, more: list[str]) -> list[str]:
    """The command line of a trial; with --task unsupervised, since the array job restarts it."""
    supervised = [] if args.task is not None else [str(ROOT / "launch" / "supervise.sh")]
    run = [*supervised, sys.executable, "-m", "vlc_jax.main"]
    workdir = str(folder_of(trial, args.out))
    fields = [f"--config.{name}={value}" for name, value in trial.values.items()]
    return [*run, "--config", args.config, "--workdir", workdir, *more, *fields]


def metric(workdir: Path, name: str) -> float:
    """The value of BENCHMARK/METRIC in a run's newest evaluation.

    Raises UsageError for an unknown name, with the known ones."""
    values = {
        f"{result['benchmark']}/{key}": row["value"]
        for result in read_workdir.newest_results(workdir)
        for key, row in result["metrics"].items()
    }
    return values[known("--metric", name, values)]


def keep_request(out: Path, request: dict[str, object]) -> None:
    """Writes the settings of the sweep to `out`. Raises UsageError if they differ from its own."""
    path = out / REQUEST
    with tempfile.NamedTemporaryFile("w", dir=out, prefix=REQUEST, delete=False) as file:
        json.dump(request, file, indent=2)
    try:
        # atomic: tasks of an array start at the same time
        os.link(file.name, path)
    except FileExistsError:
        try:
            saved = stores.parse_json(path.read_bytes())
            if not isinstance(saved, dict):
                raise ValueError("it holds no JSON object")
        except ValueError as error:
            raise UsageError(
                f"{path}, the settings of the sweep, is damaged ({error}): remove it, and give the "
                "options that the sweep began with"
            ) from error
        differing = [
            f"{k} {saved.get(k)}, not {v}" for k, v in request.items() if saved.get(k) != v
        ]
        if differing:
            raise UsageError(
                f"{out} holds another sweep: {'; '.join(differing)}; choose another --out"
            ) from None
    finally:
        os.unlink(file.name)


def parse(argv: list[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """The flags of a sweep, and further flags for its runs."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        # --config.seed=1 belongs to the runs
        allow_abbrev=False,
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of all trials")
    parser.add_argument("--config", required=True, help="config of every trial")
    parser.add_argument("--grid", nargs="+", action="append", required=True, metavar="NAME VALUE")
    parser.add_argument("--metric", help="BENCHMARK/METRIC, printed for each trial")
    parser.add_argument("--jobs", type=int, default=1, help="trials at a time; default: 1")
    parser.add_argument("--task", type=int, help="run one trial, as this task of an array job")
    parser.add_argument("--dry-run", action="store_true", help="print the commands")
    args, more = parser.parse_known_args(argv)
    args.out = args.out.absolute()
    unknown = [flag for flag in more if not flag.startswith("--config.")]
    if unknown:
        parser.error(f"further flags begin with --config., for the runs; got {unknown}")
    if any(len(field) < 2 for field in args.grid):
        parser.error(f"--grid NAME VALUE [VALUE ...] needs a value; got {args.grid}")
    if args.task is not None and args.jobs > 1:
        parser.error(f"--task runs one trial, --jobs {args.jobs} at a time are several")
    return args, more


def main(argv: list[str] | None = None) -> int:
    args, more = parse(argv)
    request = {"config": args.config, "flags": more, "grid": args.grid}
    try:
        trials = grid(args.grid, args.task)
        if args.dry_run:
            for trial in trials:
                print(shlex.join(command(trial, args, more)))
            return ExitCode.DONE
        args.out.mkdir(parents=True, exist_ok=True)
        keep_request(args.out, request)
        return Sweep(args, more, trials).run()
    except (UsageError, ValueError, OSError) as error:
        print(f"launch/sweep.py: {error}", file=sys.stderr)
        return ExitCode.USAGE


if __name__ == "__main__":
    sys.exit(main())

"""A run for every point of a grid and every seed, and their comparison.

  vlc-jax sweep --config finetune:weights=ViT-B-32@openai,data=my.csv --workdir runs/rates \\
    --grid learning_rate=1e-5,3e-5 --grid method=negclip,hp_hn --seeds 3

NAME of --grid is an argument of the config (method), a field (optimizer.learning_rate) or the end
of one (learning_rate). Values with commas are a Python list: --grid "frozen=[('text',)]". Trials
are runs of this program in the current folder, one after another, each in a folder named by its
values, DIR/learning_rate=1e-05,seed=0, with its output in log.txt; 30, 31 and 75 start one again.
The same command resumes; it may have more values and seeds. The comparison at the end, mean and
95 % interval over seeds, is printed and in DIR/comparison.html and .md.

  vlc-jax sweep ... --slurm="--gpus-per-node=1 --time=8:00:00"

submits unfinished trials as an array of Slurm jobs; --table compares what is done. Further flags,
--config.FIELD=VALUE, are for all trials. Exit codes: 0 done, 1 a trial failed, 2 wrong request, 75
stopped by a signal.
"""

import argparse
import contextlib
import functools
import io
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from vlc_jax import errors, report
from vlc_jax.configs import default
from vlc_jax.errors import ExitCode, UsageError
from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.commands import command_line as commands
from vlc_jax.input_pipeline.commands import parts
from vlc_jax.report import summary
from vlc_jax.run import terminal, workdir_files
from vlc_jax.setup import command_line, validate
from vlc_jax.tools import launch, scheduler

REQUEST = "trial.json"  # fields of the config of a trial, in its folder
Grid = Mapping[str, Sequence[str]]
LONGEST = 120  # letters of a folder's name, before a hash


class Trial(NamedTuple):
    """A run. values: without the seed; words: of its command line; fields: of its config."""

    values: Mapping[str, str]
    folder: Path
    words: Sequence[str]
    fields: Mapping[str, str]

    @property
    def is_done(self) -> bool:
        return (self.folder / "DONE").exists()


def grid(texts: Sequence[str]) -> dict[str, list[str]]:
    """["lr=1,2"] -> {"lr": ["1", "2"]}. Raises UsageError."""
    values = dict[str, list[str]]()
    for text in texts:
        name, _, after = text.partition("=")
        literal = command_line.literal(after)
        listed = [*map(str, literal)] if isinstance(literal, list) else after.split(",")
        if not name or not listed or not all(listed) or name in values:
            raise UsageError(f"--grid wants NAME=VALUE,VALUE, each name once; got {text!r}")
        if name.removeprefix("config.") == "seed":
            raise UsageError(f"--grid {text}: the comparison folds seeds, which --seeds N counts")
        values[name] = listed
    return values


def trials(config: str, values: Grid, seeds: int, out: Path, more: Sequence[str]) -> list[Trial]:
    """All combinations, those of the first seed first. Raises UsageError if the config of one is
    wrong, or that of another."""
    fields, made, names = _fields(config, values, more), list[Trial](), dict[str, str]()
    for seed, *row in itertools.product(range(seeds), *values.values()):
        point = dict(zip(values, row, strict=True))
        name = folder_name({**point, "seed": str(seed)})
        words = [*_words(config, point, fields), *more, f"--config.seed={seed}"]
        try:
            trial_config = command_line.load(words)
            validate.check(trial_config, "train")
        except UsageError as error:
            raise UsageError(f"{name}: {error}") from error
        flat = summary.flatten(trial_config.to_dict())
        if other := names.get(key := json.dumps(flat)):
            raise UsageError(f"{name} has the config of {other}: leave a value out of --grid")
        names[key] = name
        made.append(Trial(point, out / name, words, flat))
    return made


def _fields(config: str, values: Grid, more: Sequence[str]) -> dict[str, str]:
    """Name of the grid -> the field that it sets; "": it is an argument of the config."""
    leaves = summary.flatten(default.get_config().to_dict())
    paths = sorted({x.rsplit(".", k)[0] for x in leaves for k in range(x.count(".") + 1)})
    ends = [path.rpartition(".")[2] for path in paths]
    fields = {name: name.removeprefix("config.") for name in values if "." in name}
    # what is no field can only be an argument
    fields |= {name: "" for name in values if name not in (*fields, *ends)}
    arguments = {name: values[name][0] for name, field in fields.items() if not field}

    def load(point: Mapping[str, str]) -> str:
        words = _words(config, point, dict.fromkeys(point, ""))
        return command_line.load([*words, *more]).to_json_best_effort()

    try:
        base = load(arguments)
    except UsageError as error:
        hints = "".join(errors.nearest(name, ends) for name in arguments)
        raise UsageError(f"{error}{hints}") from error
    for name in values.keys() - fields.keys():
        known = [path for path, end in zip(paths, ends, strict=True) if name in (path, end)]
        fields[name] = name if name in known else known[0]
        # an argument may set more than the field of its name, as epochs its warmup
        with contextlib.suppress(UsageError):  # it is none, or the field refuses the value, too
            if {load({**arguments, name: value}) for value in values[name]} - {base}:
                fields[name] = ""
        if fields[name] == known[0] != name and len(known) > 1:
            raise UsageError(f"--grid {name}: name one of the fields {', '.join(known)}")
    return fields


def _words(config: str, point: Mapping[str, str], fields: Mapping[str, str]) -> list[str]:
    """--config with the arguments of a point in place of its own, and --config.FIELD=VALUE."""
    path, _, own = config.partition(":")
    given = {name: value for name, value in point.items() if not fields[name]}
    arguments = [word for word in own.split(",") if word and word.partition("=")[0] not in given]
    arguments += [f"{name}={value}" for name, value in given.items()]
    flags = [f"--config.{fields[name]}={value}" for name, value in point.items() if fields[name]]
    return ["--config", ":".join(filter(None, (path, ",".join(arguments)))), *flags]


def folder_name(values: Mapping[str, str]) -> str:
    """learning_rate=1e-05,seed=0: safe in every file system, the same for equal numbers."""
    text = ",".join(f"{name}={command_line.literal(value)}" for name, value in values.items())
    safe = re.sub(r"[^\w.,=+@-]+", "_", text, flags=re.ASCII)
    is_whole = safe == text and len(safe) <= LONGEST
    return safe if is_whole else f"{safe[:LONGEST]}-{sha256(text.encode()).hexdigest()[:8]}"


def begin(out: Path, made: Sequence[Trial]) -> None:
    """Makes the folders of trials. Raises UsageError for one that was begun with another config,
    and if `out` holds anything else."""
    names = {trial.folder.name for trial in made}
    for path in sorted(out.glob("[!.]*")):
        is_ours = path.stem == "comparison" or path.suffix == parts.PARTIAL
        if not is_ours and path.name not in names:
            raise UsageError(
                f"{out} holds {path.name}, which is no trial of this grid: give all values and "
                "seeds that the sweep began with, or name another --workdir"
            )
    files = {trial.folder / REQUEST: trial.fields for trial in made}
    defaults = summary.flatten(default.get_config().to_dict()).items()
    for path, fields in files.items():
        if path.exists():
            with parts.parsing(path):
                before = dict(stores.parse_json(path.read_bytes()))
            # a field that a later version added has its default here
            before = dict(fields.items() & defaults) | before
            parts.check_request(path.parent, before, fields)
    for path, fields in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        workdir_files.replace(path, json.dumps(fields, indent=1))


def command(trial: Trial) -> list[str]:
    """Command line of a trial, with the package of this process."""
    is_here = Path(__file__).parents[2] == Path.cwd()
    # -P: else files of the current folder come before packages of their names
    program = [sys.executable, *([] if is_here else ["-P"]), "-m", "vlc_jax"]
    return [*program, "--workdir", str(trial.folder), *trial.words]


def run(made: Sequence[Trial], out: Path, jobs: int) -> int:
    """Runs the trials that are not done, then compares all; returns the exit code."""
    todo = [trial for trial in made if not trial.is_done]
    print(f"{len(made)} trials, {len(made) - len(todo)} done before", flush=True)
    total, started, codes = len(todo), time.monotonic(), dict[str, int]()

    def do(trial: Trial, share: scheduler.Share) -> int:
        log = trial.folder / "log.txt"
        print(f"{trial.folder.name} writes {log}", flush=True)
        words = ["bash", str(launch.path("supervise.sh")), *command(trial)]
        try:
            return processes.process(words, Path.cwd(), log, share)
        except OSError as error:  # a full disk, a folder that cannot be written
            print(f"{trial.folder}: {error}", file=sys.stderr)
            return ExitCode.INFRASTRUCTURE

    def finish(trial: Trial, code: int) -> None:
        codes[trial.folder.name] = code
        outcome = {0: "done", ExitCode.PREEMPTED: "stopped"}.get(code)
        if outcome is None:
            last = (trial.folder / "log.txt").read_text(errors="replace").strip()
            outcome = f"FAILED with {code}: {last.rpartition(chr(10))[2]}"
        minutes = (time.monotonic() - started) / 60
        left = minutes / len(codes) * (total - len(codes))
        counted = f"{len(codes)}/{total} {trial.folder.name}: {outcome}"
        print(f"{counted}; {minutes:.0f} min, about {left:.0f} to go", flush=True)

    processes = scheduler.Scheduler(
        scheduler.shares(jobs), lambda: todo.pop(0) if todo else None, do, finish
    )
    with parts.locked(out):
        processes.run()
        if processes.is_stopped:
            print("stopped; the same command resumes", file=sys.stderr)
            return ExitCode.PREEMPTED
        compare(made, out)
    failed = [name for name, code in codes.items() if code]
    if failed:
        print(f"failed: {'; '.join(failed)}", file=sys.stderr)
    return 1 if failed else ExitCode.DONE


def compare(made: Sequence[Trial], out: Path) -> None:
    """Prints and writes the comparison of the trials that are done, a row per point."""
    done = [trial.folder for trial in made if trial.is_done]
    print(report.write_methods(done, out, len(made) - len(done)))


def array(args: argparse.Namespace, numbers: Sequence[int], more: Sequence[str]) -> list[str]:
    """The command that submits trials as tasks of an array job."""
    limit = f"%{args.jobs}" if args.jobs else ""
    options = [f"--array={','.join(map(str, numbers))}{limit}", *shlex.split(args.slurm)]
    again = ["--config", args.config, "--workdir", args.workdir, "--seeds", str(args.seeds)]
    again += [word for text in args.grid for word in ("--grid", text)]
    return ["sbatch", *options, str(launch.path("slurm.sbatch")), "sweep", *again, *more]


def become(made: Sequence[Trial], number: int) -> int:
    """Replaces this process, a task of an array job, by the run of a trial: signals of Slurm reach
    it once."""
    if not 0 <= number < len(made):
        raise UsageError(f"--task {number} of {len(made)} trials; use 0 to {len(made) - 1}")
    if made[number].is_done:
        return ExitCode.DONE
    is_of_several = int(os.environ.get("SLURM_NTASKS", 1)) > 1
    words = [*command(made[number]), *(["--coordinator=auto"] if is_of_several else [])]
    return os.execvp(words[0], words)


@errors.usage_errors()
def sweep(more: Sequence[str], args: argparse.Namespace) -> int:
    """Does what the options ask for; returns the exit code."""
    wrong = [word for word in more if not re.match(r"--config\.(?!seed=).*=", word)]
    if wrong:
        raise UsageError(f"further flags are --config.FIELD=VALUE, but for seed; got {wrong[0]}")
    if stores.is_url(args.workdir):
        raise UsageError(f"--workdir {args.workdir}: name a local folder, or one that is mounted")
    out = Path(args.workdir).absolute()
    with contextlib.redirect_stderr(said := io.StringIO()):  # of configs, at each load
        made = trials(args.config, grid(args.grid), args.seeds, out, more)
    sys.stderr.writelines(dict.fromkeys(said.getvalue().splitlines(keepends=True)))
    todo = [number for number, trial in enumerate(made) if not trial.is_done]
    is_array = args.slurm is not None and todo
    if args.dry_run:
        lines = [array(args, todo, more)] if is_array else [command(made[k]) for k in todo]
        print("\n".join(map(shlex.join, lines)))
        return ExitCode.DONE
    begin(out, made)
    if args.task is not None:
        return become(made, args.task)
    if is_array:
        if not shutil.which("sbatch"):
            raise UsageError("there is no sbatch: --slurm is for a login node of Slurm")
        print("--table in place of --slurm compares the trials that are done", flush=True)
        return subprocess.run(array(args, todo, more), check=False).returncode
    if args.table:
        compare(made, out)
        return ExitCode.DONE
    return run(made, out, args.jobs or 1)


def main(arguments: list[str] | None = None) -> int:
    # --config.seed=1 is no abbreviation
    parser = commands.parser("sweep", __doc__, allow_abbrev=False)
    add, once = parser.add_argument, parser.add_mutually_exclusive_group().add_argument
    add("--config", required=True, help="config of every trial, by name or path")
    add("--grid", action="append", default=[], metavar="NAME=VALUE,VALUE", help="see above")
    add("--seeds", type=commands.positive, default=1, metavar="N", help="0 to N - 1; default: 1")
    add("--workdir", required=True, metavar="DIR", help="folder of all trials")
    text = "trials at a time, on shares of the cores and of the GPUs in CUDA_VISIBLE_DEVICES"
    add("--jobs", type=commands.positive, metavar="N", help=f"{text}; default: 1, of --slurm all")
    once("--slurm", nargs="?", const="", metavar="OPTIONS", help="submit an array job by sbatch")
    once("--task", type=int, metavar="I", help="become trial I, as a task of an array job")
    once("--table", action="store_true", help="only compare what is done")
    add("--dry-run", action="store_true", help="print commands, start nothing")
    args, more = parser.parse_known_args(arguments)
    terminal.quieten()
    return commands.exit_code(functools.partial(sweep, more), args)


if __name__ == "__main__":
    sys.exit(main())

"""Train, resume and evaluate: python -m vlc_jax.main --config configs/scenes/clip.py --workdir DIR

Installed, the same is `vlc-jax --config scenes/clip --workdir DIR`. --list shows the configs with
their arguments, the losses, heads, variants and benchmarks.
Running the same command again resumes. Any field of the config can be changed after --config:
--config.steps=200 --config.optimizer.learning_rate=3e-4. Exit codes: 0 done, 2 usage or config,
3 data, 10 diverged, 20 out of memory, 30 infrastructure or a lost process, 31 no progress, 75
preempted with the state saved (after these three run the same command again), 130/143 second
signal.
"""

if __name__ == "__main__":  # before the imports below, which take seconds
    from vlc_jax.run import startup

    startup.install()

import errno
import gc
import logging
import multiprocessing
import os
import sys
import threading
import traceback
from functools import partial
from pathlib import Path

from absl import app, flags
from ml_collections import ConfigDict

from vlc_jax import errors
from vlc_jax.devices import runtime
from vlc_jax.errors import ExitCode, PeerError, UsageError
from vlc_jax.evaluation import mode, watch
from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.commands import command_line as reading
from vlc_jax.input_pipeline.stores import any_path
from vlc_jax.plan import plan
from vlc_jax.run import terminal, workdir_files
from vlc_jax.run.checkpoint import SaveError
from vlc_jax.run.environment import environment
from vlc_jax.run.processes import guard
from vlc_jax.run.processes.peers import GRACE_SECONDS, Peers
from vlc_jax.run.processes.preemption import StopSignal
from vlc_jax.run.workdir import Workdir, config_diff
from vlc_jax.setup import addresses, catalogue, command_line, fetch_inputs, plan_search, resolve
from vlc_jax.train import loop

LONGEST = 7 * 24 * 3600.0  # seconds, of a wait for other processes
WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run; made if missing.")
MODE = flags.DEFINE_enum(
    "mode",
    "train",
    ["train", "eval", "plan"],
    "eval: only evaluate the newest state; plan: compile a step for --plan_topology, or for the "
    "present devices, and print memory, time and collectives (needs no data, no --workdir).",
)
TOPOLOGY = flags.DEFINE_list(
    "plan_topology",
    None,
    "With --mode plan: a TPU slice such as v5e:16x16, v6e:4x4 or v5p:8x8x8; several give a table.",
)
STEP = flags.DEFINE_enum(
    "plan_step",
    "train",
    ["train", "score"],
    "With --mode plan: a training step, or the evaluation of config.eval.batch_size images, each "
    "with a text of its own.",
)
SEARCH = flags.DEFINE_list(
    "plan_search",
    [],
    "With --mode plan: settings to try in all combinations (remat, fsdp, implementation), and of "
    "microbatch and batch_size, for each of these, the largest that fits.",
)
WATCH = flags.DEFINE_string(
    "watch", None, "With --mode eval: a run whose new checkpoints are evaluated until it ends."
)
ALLOW = flags.DEFINE_bool(
    "allow_config_change", False, "Resume although config or data differ from the saved ones."
)
COORDINATOR = flags.DEFINE_string(
    "coordinator", None, "host:port of process 0, or 'auto' on TPU pods and Slurm."
)
PROCESSES = flags.DEFINE_integer(
    "num_processes",
    None,
    "Number of processes, with --coordinator.",
    lower_bound=1,
    upper_bound=100_000,  # each has a file that all of them read
)
PROCESS = flags.DEFINE_integer("process_id", None, "Index of this process, with --coordinator.")

JOIN = flags.DEFINE_float(
    "join_seconds",
    300.0,
    "Seconds within which all processes must start, with --coordinator.",
    lower_bound=1.0,
    upper_bound=LONGEST,
)
LOST = flags.DEFINE_float(
    "lost_seconds",
    100.0,
    "Seconds without a sign of life after which a process is lost, and the others end.",
    lower_bound=5.0,
    upper_bound=LONGEST,
)
for holder in (JOIN, LOST):
    # a bound does not refuse NaN, with which nothing ever ends
    flags.register_validator(holder, lambda value: value == value, "it must be a number of seconds")

FLAGS = (
    command_line.CONFIG,
    WORKDIR,
    MODE,
    TOPOLOGY,
    STEP,
    SEARCH,
    WATCH,
    ALLOW,
    COORDINATOR,
    PROCESSES,
    PROCESS,
    JOIN,
    LOST,
)

MEMORY_ADVICE = (
    "; out of memory: lower config.batch_size, config.eval.batch_size or "
    "config.input.loader.workers, set config.microbatch or config.model.remat=block, or let a loss "
    "run in chunks (implementation=chunked); the same --config with --mode plan prints the memory "
    "of a step, and with --plan_search=remat,microbatch the settings that fit"
)
FULL_DISK = (errno.ENOSPC, errno.EDQUOT)


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unknown arguments {argv[1:]}; options start with --")
    terminal.quieten()
    # with Python's default of 700 the collector walks the cases of all benchmarks hundreds of
    # times, which takes a tenth of an evaluation from the cache
    gc.set_threshold(50_000, 20, 50)
    stop = listen()
    code = run(stop)
    stop.ignore()
    sys.stdout.flush()
    sys.stderr.flush()
    logging.shutdown()
    # an abandoned compilation or a hanging loader must not delay the exit
    if code or is_loader_left():
        os._exit(code)


def listen() -> StopSignal:
    """Installs signal handlers; with several processes forks a supervised child, returns in it."""
    is_guarded = bool(COORDINATOR.value and WORKDIR.value)
    if is_guarded:
        guard.guard(absolute(WORKDIR.value), COORDINATOR.value, LOST.value)
    return StopSignal().install(is_guarded)


def absolute(workdir: str) -> Path | str:
    """Absolute local path, or an address unchanged; an unsupported address ends the process."""
    try:
        if not stores.is_url(workdir):
            return workdir_files.run_folder(Path(workdir).absolute())
        if not workdir.startswith("gs://"):
            raise ValueError(
                f"{workdir}: runs lie in local folders or at gs://, the only store where their "
                "lock and their checkpoints are tested; data may lie at s3:// and az://, too"
            )
        any_path.of(workdir)  # raises ValueError if the store's package is not installed
        return workdir
    except ValueError as error:
        print(f"Usage: --workdir {error}", file=sys.stderr)
        sys.exit(ExitCode.USAGE)


def is_loader_left() -> bool:
    """True if a thread or process of a closed loader still waits for hanging storage."""
    is_thread = any(thread.name.startswith("loader") for thread in threading.enumerate())
    return is_thread or bool(multiprocessing.active_children())


def run(stop: StopSignal) -> int:
    """Runs the command of the flags; an expected error becomes one line and its exit code."""
    workdir = peers = config = None
    try:
        if MODE.value == "plan":
            return plan_step(stop)
        if TOPOLOGY.present or STEP.present or SEARCH.present:
            raise UsageError("--plan_topology, --plan_step and --plan_search are for --mode plan")
        if not WORKDIR.value:  # "": of a variable of the shell that is not set
            raise UsageError("--workdir DIR is missing, the folder of the run; --help lists all")
        folder = absolute(WORKDIR.value)
        if WATCH.value is not None and MODE.value != "eval":
            raise UsageError("--watch belongs to --mode eval; to train, leave it out")
        if MODE.value == "eval" and not command_line.CONFIG.present:
            raise UsageError(f"there is no run at {folder}: name its --workdir, or a --config FILE")
        config = command_line.config()
        peers = connect(config, folder, stop)
        # interruptible: a store may not answer
        workdir = stop.interrupt(partial(Workdir, folder, peers), has_begun=False)
        stop.interrupt(partial(fetch_inputs, config, MODE.value), has_begun=False)
        setup = resolve(config, MODE.value)
        if MODE.value == "train":
            # with config.pretrain two runs: first that one in WORKDIR/pretrain, then this one
            has_pretraining = config.pretrain and not config.init_from
            pretraining = resolve(config.pretrain, "train") if has_pretraining else None
            loop.train(setup, workdir, stop, allow_change=ALLOW.value, pretraining=pretraining)
        elif WATCH.value is not None:
            watch.watch(setup, workdir, stop, WATCH.value)
        else:
            mode.evaluate_workdir(setup, workdir, stop, allow_change=ALLOW.value)
        with workdir.after_done():
            workdir.flush()
        return ExitCode.DONE
    except Exception as error:
        if isinstance(error, BrokenPipeError) and reading.has_reader_left():
            return reading.UNREAD
        code = errors.exit_code(error)
        logging.debug("%s", traceback.format_exc())
        if code is None or isinstance(error, SaveError):
            # a lost process can cause any error of JAX in this one
            lost = peers.lost(GRACE_SECONDS) if peers is not None else None
            if lost is not None:
                code, error = lost[0], PeerError(lost[1])
            elif code is None:
                raise
        name = type(error).__name__.removesuffix("Error")
        lines = f"{name}: {error}{advice(code, error, config)}".split("\n")
        line = "\n".join(map(reading.one_line, lines))
        if peers is None:
            print(line, file=sys.stderr)
        else:
            peers.say_end(code, line)
        if workdir is not None:
            record_end(workdir, code, error)
        return code
    finally:
        if workdir is not None:
            workdir.close()
        if peers is not None:
            peers.stop()


def advice(code: int, error: BaseException, config: ConfigDict | None) -> str:
    """Advice for the end of an error's line; empty if the error itself says what to do."""
    if isinstance(error, OSError) and error.errno in FULL_DISK:
        return f"; make room for {WORKDIR.value} and run the same command again"
    if code == ExitCode.OUT_OF_MEMORY:
        return MEMORY_ADVICE
    if code in (ExitCode.USAGE, ExitCode.DATA) and config is not None:
        return addresses.started_elsewhere(config, absolute(WORKDIR.value), error)
    if code == ExitCode.PREEMPTED:
        results = "; finished benchmarks and features are kept" if MODE.value == "eval" else ""
        return f"{results}: the same command continues"
    return ""


def plan_step(stop: StopSignal) -> ExitCode:
    """Runs --mode plan. Exit code 20 if no requested setting fits in memory."""
    if WORKDIR.value or COORDINATOR.value:
        raise UsageError("--mode plan runs in one process and writes nothing: leave out --workdir")
    config = command_line.config()
    runtime.connect(None)
    slices, is_scored = TOPOLOGY.value or [None], STEP.value == "score"
    if len(slices) > 1:
        if SEARCH.value:
            raise UsageError("--plan_search is for one slice: --plan_topology names several")
        make = partial(plan.table, plan_search.topology_plans(config, slices, is_scored))
    else:
        make = partial(plan.run, plan_search.planned(config, slices[0], SEARCH.value, is_scored))
    # interruptible: compilations take minutes
    fits = stop.interrupt(make, has_begun=False)
    return ExitCode.DONE if fits else ExitCode.OUT_OF_MEMORY


def connect(config: ConfigDict, folder: Path | str, stop: StopSignal) -> Peers | None:
    """Connects the processes of a run, after comparing config and program; None for one process."""
    coordinator, count, index = COORDINATOR.value, PROCESSES.value, PROCESS.value
    if not coordinator:
        runtime.connect(None)
        return None
    is_known = count is not None and index is not None and 0 <= index < count
    if not is_known:  # the cluster sets them, or JAX refuses invalid ones
        runtime.connect(coordinator, count, index, JOIN.value)
        index, count = runtime.process()
    peers = Peers(folder, index, count, LOST.value).start()
    if is_known and index == 0:
        runtime.check_port(coordinator)
    stop.interrupt(partial(peers.join, JOIN.value), has_begun=False)
    if is_known:  # only after the join: JAX aborts if a process is absent
        peers.enter("connecting")
        runtime.connect(coordinator, count, index, JOIN.value)
    peers.enter("running")
    program = {name: value for name, value in environment().items() if name != "command"}
    peers.agree("program", {"config": config.to_dict(), "mode": MODE.value, **program}, config_diff)
    return peers


def record_end(workdir: Workdir, code: int, error: BaseException) -> None:
    """Notes a stopped run, or marks a failed one; a full disk prints a line instead."""
    if code == ExitCode.PREEMPTED:
        workdir.event("preempted", signal=error.args[0])
    elif code != ExitCode.USAGE and MODE.value == "train":  # otherwise nothing was trained
        try:
            workdir.fail(code, str(error))
        except OSError as another:
            print(f"cannot mark the run as failed: {another}", file=sys.stderr)


def help_text(commands: str) -> str:
    """Text of --help: this file's docstring, the flags, and `commands`."""
    described = (f"  --{holder.name}: {flags.FLAGS[holder.name].help}" for holder in FLAGS)
    listing = (
        "  --list [NAME]: Show the names for a config; vlc-jax: of NAME, its published numbers."
    )
    return "\n".join([__doc__, *described, listing, commands])


def show(text: str) -> int:
    """Prints a text; returns the exit code."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        return reading.UNREAD if reading.has_reader_left() else ExitCode.INFRASTRUCTURE
    return ExitCode.DONE


def cli(commands: str = "") -> None:
    """The command line; --help and --list print their text and end with exit code 0."""
    if "--list" in sys.argv[1:-1]:
        print("Usage: the numbers of a config: python -m vlc_jax --list NAME", file=sys.stderr)
        sys.exit(ExitCode.USAGE)
    if {"--help", "-h", "-help", "--list"} & {*sys.argv}:  # tools have another --help
        sys.exit(show(catalogue.listing() if "--list" in sys.argv else help_text(commands)))
    app.run(main, flags_parser=command_line.parse_flags)


if __name__ == "__main__":
    cli()

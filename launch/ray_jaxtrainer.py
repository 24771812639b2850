"""One run on the workers of a Ray cluster: Ray Train's JaxTrainer around vlc_jax.main.

  python -m vlc_jax.launch.ray_jaxtrainer --workers 4 --gpus -- --config FILE --workdir DIR [flags]
  python -m vlc_jax.launch.ray_jaxtrainer --workers 4 --tpu v6e:4x4 -- --config FILE --workdir DIR

A worker is a GPU or a host of the TPU slice; without --gpus and --tpu, one worker on CPUs. All
nodes have vlc_jax installed, and the current folder and DIR on a shared file system. The run
restarts, at most ten times, if a worker is lost or ends with 30, 31 or 75. Exits with the code of
the run, or with 1 after ten restarts.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

RESTARTED = (30, 31, 75)


def train(words: dict[str, Any]) -> int:
    """Body of a worker: one run of vlc_jax.main; Ray has already connected the processes."""
    from vlc_jax import main
    from vlc_jax.run import terminal
    from vlc_jax.run.processes import preemption
    from vlc_jax.setup import command_line

    terminal.quieten()
    os.chdir(words["folder"])
    # ml_collections reads config overrides from sys.argv
    sys.argv = ["vlc_jax", *words["flags"]]
    try:
        command_line.parse_flags(sys.argv)
        # no handlers: this is not the main thread
        code = main.run(preemption.StopSignal())
    except SystemExit as error:  # wrong flags
        code = error.code
    if code in RESTARTED:
        raise RuntimeError(f"the run ended with {int(code)}: a restart may help")
    return int(code)


def cli() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--gpus", action="store_true", help="one GPU per worker")
    parser.add_argument("--tpu", metavar="VERSION:TOPOLOGY", help="such as v6e:4x4")
    parser.add_argument("flags", nargs="+", help="flags of vlc_jax.main, after --")
    args = parser.parse_args()
    if args.workers > 1 and not args.gpus and not args.tpu:
        parser.error(f"{args.workers} workers need --gpus or --tpu: Ray joins no processes on CPUs")
    try:
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.v2.jax import JaxTrainer
    except ImportError as error:
        parser.error(f'{error}; install it with pip install "ray[train]"')
    version, _, topology = (args.tpu or "").partition(":")
    scaling = ScalingConfig(
        num_workers=args.workers,
        use_gpu=args.gpus,
        use_tpu=bool(args.tpu),
        topology=topology or None,
        accelerator_type=f"TPU-{version.upper()}" if args.tpu else None,
    )
    # Read when Ray connects the processes: JAX must not install its own SIGTERM handler.
    environment = {"JAX_ENABLE_PREEMPTION_SERVICE": "false"}
    run = RunConfig(
        storage_path=str(Path.cwd() / "runs" / "ray"),
        failure_config=FailureConfig(max_failures=10),
        worker_runtime_env={"env_vars": environment},
    )
    words = {"flags": args.flags, "folder": str(Path.cwd())}
    trainer = JaxTrainer(train, train_loop_config=words, scaling_config=scaling, run_config=run)
    return trainer.fit().return_value


if __name__ == "__main__":
    sys.exit(cli())

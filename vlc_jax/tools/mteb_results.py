"""mteb's own tasks (MIEB) on a trained model, as a folder of mteb's results:

  vlc-jax mteb --model runs/clip --name me/clip --tasks SugarCrepe Winoground --out mteb

Writes OUT/results/me__clip/<fingerprint of the model>/<task>.json and model_meta.json beside it,
which mteb.ResultCache(OUT).load_results reads; a finished task is not run again. Needs an
environment with `mteb` (2.26; `pip install mteb`) beside ours; mteb downloads the data of its
tasks. How its metrics differ from ours: docs/benchmarks.md.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline.commands import command_line
from vlc_jax.tools import command


def write(model: Any, name: str, tasks: Iterable[Any], out: Path) -> list[Path]:
    """Runs tasks of mteb on a loaded model and returns the files of their results.

    name: "organisation/name", as in `mteb_encoder.MtebEncoder`.

    Raises UsageError without mteb, and for a model whose score is not a cosine.
    """
    mteb = _mteb()
    from vlc_jax.tools.mteb_encoder import MtebEncoder

    encoder = MtebEncoder(model, name)
    cache = mteb.ResultCache(out)
    done = mteb.evaluate(encoder, [*tasks], cache=cache)
    names = [result.task_name for result in done.task_results]
    return [cache.get_task_result_path(each, encoder.mteb_model_meta) for each in names]


def find(names: Sequence[str]) -> list[Any]:
    """Tasks of mteb by name. Raises UsageError without mteb, and for an unknown name."""
    mteb = _mteb()
    try:
        return [mteb.get_task(name) for name in names]
    except (KeyError, ValueError) as error:
        raise UsageError(f"--tasks: {error.args[0]}") from error


def _mteb() -> Any:
    try:
        import mteb
    except ImportError as error:
        raise UsageError(f"the tasks are mteb's: pip install mteb ({error})") from error
    return mteb


def _parser() -> argparse.ArgumentParser:
    parser = command_line.parser("mteb", __doc__)
    parser.add_argument("--name", required=True, help="organisation/name, in mteb's results")
    parser.add_argument("--tasks", required=True, nargs="+", metavar="TASK")
    parser.add_argument("--out", required=True, type=Path, help="folder of mteb's results")
    parser.add_argument("--batch_size", type=command_line.positive, default=64)
    command.add_model(parser)
    return parser


def _run(args: argparse.Namespace) -> str:
    tasks = find(args.tasks)
    return "\n".join(map(str, write(command.model(args), args.name, tasks, args.out)))


main = command.main(_parser, _run)

if __name__ == "__main__":
    sys.exit(main())

"""WiSE-FT: benchmarks on mixtures of two models (Wortsman et al. 2022, equation 1)."""

import shutil
from pathlib import Path
from typing import Any

import jax

from vlc_jax.evaluation.benchmarks import Evaluation
from vlc_jax.models.parameters import fingerprint
from vlc_jax.run.workdir import Workdir, read_object, write_json
from vlc_jax.setup import init_from
from vlc_jax.types.setup import Setup


def evaluate(
    setup: Setup, workdir: Workdir, evaluation: Evaluation, variables: Any, step: int
) -> None:
    """Runs every benchmark on (1 - alpha) other + alpha `variables` for each alpha.

    Results of each alpha go to interpolate/<alpha> of the workdir; interpolate/mixed.json names the
    two weights. Results of other weights or of an earlier step are removed first.
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
        print(f"report: {workdir.display_path(report.write(workdir.path))}")


def _start_mixture(folder: Path, facts: dict[str, Any]) -> None:
    """Empties `folder` and writes mixed.json, unless it has results of the same weights."""
    file = folder / "mixed.json"
    if file.exists() and read_object(file) == facts:
        return
    if folder.exists():
        print(f"{folder} has results of other weights or of another step: they are replaced")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    write_json(file, facts)

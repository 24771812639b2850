"""Compositional vision-language models in JAX.

    model = vlc_jax.load("runs/clip")  # a run, an exported folder, or published weights
    model.score(["a.jpg"], ["the horse eats the grass", "the grass eats the horse"])
    vlc_jax.evaluate(model, "sugarcrepe", root="sets", workdir="evals/clip")  # or anybody's model
    vlc_jax.results(["runs/clip", "evals/clip"])  # as a pandas DataFrame

Training and evaluation: python -m vlc_jax.main --help
"""

from pathlib import Path
from typing import Any

_LINK = Path(__file__).parent / "configs"
if _LINK.is_file():
    raise ImportError(
        f"{_LINK} is a text file, as this checkout has no symbolic links: clone again with "
        "`git clone -c core.symlinks=true` (on Windows in developer mode)"
    )

__all__ = ["evaluate", "load", "results"]
__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    # here: they import JAX, which a submodule such as vlc_jax.errors can do without
    if name == "load":
        from vlc_jax.encode import load

        return load.load
    if name == "evaluate":
        from vlc_jax.evaluation import library

        return library.evaluate
    if name == "results":
        from vlc_jax.evaluation import results

        return results.results
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

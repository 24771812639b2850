"""`vlc_jax.results`: the results of runs as a table of pandas. It needs no JAX."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vlc_jax import report
from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.stores import fetch


def results(folders: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> Any:
    """Results of runs as a pandas DataFrame: a row per run and metric, groups included.

    Its columns are those of `vlc-jax report RUN... --format csv`: value with 95 % interval (low,
    high), chance and blind, in fractions; method is equal for runs that differ only in their seed,
    cases for runs on the same cases, and in_tables marks the metrics of result tables.

    folders: one or several workdirs of runs or of `vlc_jax.evaluate`, or addresses.

    Raises UsageError for a folder that is no run, is given twice or has no results, and without
    pandas.
    """
    try:
        import pandas
    except ImportError as error:
        raise UsageError("vlc_jax.results needs pandas: pip install pandas") from error
    several = [folders] if isinstance(folders, str | os.PathLike) else folders
    paths = [fetch.local(str(each)) if stores.is_url(each) else each for each in several]
    try:
        return pandas.DataFrame(report.records([Path(path) for path in paths]))
    except (report.NotAWorkdirError, ValueError) as error:
        raise UsageError(str(error)) from error

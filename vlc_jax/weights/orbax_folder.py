"""Reader of the parameters in a checkpoint of Orbax, a folder, without the optimizer's state.

The training state is the tree {"params": ..., "opt": ...}. TensorStore, which is installed with
Orbax, stores each array under its path, joined by ".", in one database of the folder (OCDBT).
"""

import math
from pathlib import Path
from typing import Any

import numpy as np

from vlc_jax.errors import WeightsError
from vlc_jax.input_pipeline.stores import zips
from vlc_jax.weights import sizes

MANIFEST = "manifest.ocdbt"
# Folders from the weights to the database: OpenVision's are jax_orbax_weight/checkpoint.npz/STEP/
# default.
_DEPTH = 4
_PROCESS = "ocdbt.process_"  # parts of the database, which have manifests of their own
# Last part of the key of an array's header -> TensorStore's driver.
_DRIVERS = {".zarray": "zarr", "zarr.json": "zarr3"}


def find(path: Path) -> list[Path]:
    """The checkpoint in a folder, or []. Raises WeightsError for several, and for runs below it."""
    found = {
        manifest.parent
        for depth in range(_DEPTH + 1)
        for manifest in path.glob("*/" * depth + MANIFEST)
        if not manifest.parent.name.startswith(_PROCESS)
    }
    in_runs = [each for each in found if each.parents[1].name == "checkpoints"]
    runs = {each.parents[2] for each in in_runs if path in each.parents[2].parents}
    names = ", ".join(str(each.relative_to(path)) for each in sorted(runs or found)[:6])
    if runs:
        raise WeightsError(f"{path} is a folder of runs: name one of them, such as {names}")
    if len(found) > 1:
        raise WeightsError(f"{path} holds {len(found)} Orbax checkpoints, name one of {names}")
    return sorted(found)


def read(path: Path, only_shapes: bool) -> dict[str, np.ndarray]:
    """Arrays under "params" of the checkpoint, {path joined by "/": array}.

    only_shapes: placeholders instead of arrays. Raises WeightsError for a damaged checkpoint, and
    for one without parameters.
    """
    try:
        stores = _stores(path)
        if only_shapes:
            return {name: sizes.placeholder(store.shape) for name, store in stores.items()}
        needed = sum(math.prod(x.shape) * x.dtype.numpy_dtype.itemsize for x in stores.values())
        held = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        if needed > zips.MAX_RATIO * held:
            raise ValueError(f"arrays of {needed:,} bytes in files of {held:,}")
        return {name: store.read().result() for name, store in stores.items()}
    except (ValueError, OSError, RuntimeError, TypeError) as error:
        raise WeightsError(f"{path} is damaged, or no Orbax checkpoint: {error}") from error


def _stores(path: Path) -> dict[str, Any]:
    """TensorStore's handle of each array of parameters, by name."""
    import tensorstore  # takes 0.1 s

    database = {"driver": "ocdbt", "base": f"file://{path.resolve()}/"}
    keys = tensorstore.KvStore.open(database).result().list().result()
    stores = {}
    for key in sorted(key.decode() for key in keys):
        name, _, header = key.rpartition("/")
        if header in _DRIVERS and name.startswith("params."):
            spec = {"driver": _DRIVERS[header], "kvstore": {**database, "path": f"{name}/"}}
            stores[name.replace(".", "/")] = tensorstore.open(spec, open=True, read=True).result()
    if not stores:
        raise ValueError("it has no arrays under params")
    return stores

"""LoRA (Hu et al. 2022) and DoRA (Liu et al. 2024) as data: small matrices beside frozen weights.

What is trained and saved is a tree of its own,
  {"lora": {...: {"a": (inputs, rank), "b": (rank, outputs), "magnitude": (outputs,)}}, ...},
at the places of the matrices that are adapted ("magnitude" with DoRA only), together with those
parameters that are trained in full, at their own places. `merge` puts it onto the frozen ones.
"""

import itertools
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict
from jaxtyping import Array, Float

from vlc_jax.errors import UsageError, known

SHOWN = 8  # names in an error message
LORA = "lora"  # the branch of the trained tree that holds the adapters
INITIALISATIONS = {  # of a, as peft names them; b starts at zero
    # up to 1 / sqrt(inputs)
    "uniform": lambda key, shape: jax.random.uniform(key, shape, minval=-1) * shape[-2] ** -0.5,
    # standard deviation 1 / rank
    "gaussian": lambda key, shape: jax.random.normal(key, shape) / shape[-1],
}


class Columns(NamedTuple):
    """Some columns of a kernel."""

    path: str
    start: int
    stop: int


def matrices(shapes: Mapping[str, Any]) -> dict[str, tuple[Columns, ...]]:
    """Every matrix that can have an adapter, by name: where its columns lie in the parameters.

    The name is the parameter's path. Of an attention there are "query/kernel", "key/kernel" and
    "value/kernel", although keys and values share a parameter, and "query_key_value/kernel": the
    three as one matrix, as an adapter of torch's packed in_proj sees them.
    """
    found = {}
    for path, leaf in flatten_dict(dict(shapes), sep="/").items():
        if not path.endswith("/kernel") or len(leaf.shape) < 2:
            continue
        width = leaf.shape[-1]
        if not path.endswith("/key_value/kernel"):
            found[path] = (Columns(path, 0, width),)
            continue
        attention = path.removesuffix("key_value/kernel")
        query = f"{attention}query/kernel"
        key_value = (Columns(path, 0, width // 2), Columns(path, width // 2, width))
        found[f"{attention}key/kernel"], found[f"{attention}value/kernel"] = (
            (half,) for half in key_value
        )
        found[f"{attention}query_key_value/kernel"] = (
            Columns(query, 0, width // 2),
            Columns(path, 0, width),
        )
    return found


def init(
    key: jax.Array,
    params: Mapping[str, Any],
    *,
    targets: str,
    rank: int,
    dora: bool = False,
    initialisation: str = "uniform",
    full: str = "",
) -> dict[str, Any]:
    """A trained tree that changes nothing yet.

    targets: regular expression of whole names in `matrices`.   rank: of every adapter.
    initialisation: of a; uniform | gaussian.   full: regular expression of whole paths of other
    parameters that are trained beside the adapters.
    Raises UsageError for an expression that matches nothing, and for adapters that overlap.
    """
    known("initialisation of an adapter", initialisation, INITIALISATIONS)
    flat = flatten_dict(dict(params), sep="/")
    chosen = _chosen(targets, matrices(params))
    trained = _matching(full, flat, "config.lora.full") if full else {}
    touched = {columns.path for pieces in chosen.values() for columns in pieces}
    if both := sorted(touched & trained.keys()):
        raise UsageError(f"{both[0]} has an adapter and is in config.lora.full; choose one")
    keys = jax.random.split(key, len(chosen))
    for seed, (name, pieces) in zip(keys, chosen.items(), strict=True):
        matrix = _read(flat, pieces)
        *layers, inputs, outputs = matrix.shape
        if not 0 < rank <= min(inputs, outputs):
            raise UsageError(
                f"config.lora.rank must be from 1 to {min(inputs, outputs)}, the smaller side of "
                f"{name}; got {rank}"
            )
        adapter = {
            "a": INITIALISATIONS[initialisation](seed, (*layers, inputs, rank)),
            "b": jnp.zeros((*layers, rank, outputs)),
        }
        if dora:
            adapter["magnitude"] = _norms(matrix)
        trained |= {f"{LORA}/{name}/{part}": value for part, value in adapter.items()}
    return unflatten_dict(trained, sep="/")


def merge(params: Mapping[str, Any], trained: Mapping[str, Any], alpha: float) -> dict[str, Any]:
    """The parameters a model takes: `params` with what was trained put onto them.

    LoRA: W + (alpha / rank) a b (equation 3).   DoRA: V = W + (alpha / rank) a b, its columns
    scaled to the length `magnitude`; no gradient flows through the lengths of V (section 4.3).
    """
    flat = flatten_dict(dict(params), sep="/")
    where = matrices(params)
    flat |= flatten_dict({k: v for k, v in trained.items() if k != LORA}, sep="/")
    for name, adapter in adapters(trained).items():
        matrix = _read(flat, where[name])
        scale = alpha / adapter["a"].shape[-1]
        matrix += scale * jnp.matmul(adapter["a"], adapter["b"], precision="highest")
        if "magnitude" in adapter:
            length = jax.lax.stop_gradient(_norms(matrix))
            matrix *= (adapter["magnitude"] / length)[..., None, :]
        flat |= _written(flat, where[name], matrix)
    return unflatten_dict(flat, sep="/")


def adapters(trained: Mapping[str, Any]) -> dict[str, dict[str, Array]]:
    """The adapters of a trained tree by the name of their matrix."""
    flat = flatten_dict(dict(trained[LORA]), sep="/")
    found: dict[str, dict[str, Array]] = {}
    for path, value in flat.items():
        name, _, part = path.rpartition("/")
        found.setdefault(name, {})[part] = value
    return found


def _chosen(
    targets: str, where: Mapping[str, tuple[Columns, ...]]
) -> dict[str, tuple[Columns, ...]]:
    chosen = _matching(targets, where, "config.lora.targets")
    taken = [(columns, name) for name, pieces in chosen.items() for columns in pieces]
    for (one, name), (other, second) in itertools.combinations(taken, 2):
        if one.path == other.path and one.start < other.stop and other.start < one.stop:
            raise UsageError(
                f"config.lora.targets matches {name} and {second}, which are in part the same "
                "matrix; choose one"
            )
    return chosen


def _matching(regex: str, names: Mapping[str, Any], field: str) -> dict[str, Any]:
    try:
        found = {name: value for name, value in names.items() if re.fullmatch(regex, name)}
    except re.error as error:
        raise UsageError(f"{field} {regex!r} is no regular expression: {error}") from error
    if not found:
        listing = ", ".join(list(names)[:SHOWN])
        raise UsageError(f"{field} {regex!r} matches no whole name of {len(names)}: {listing}, ...")
    return found


def _read(flat: Mapping[str, Array], pieces: tuple[Columns, ...]) -> Float[Array, "*l inputs out"]:
    parts = [flat[path][..., start:stop] for path, start, stop in pieces]
    return jnp.concatenate(parts, axis=-1)


def _written(
    flat: Mapping[str, Array], pieces: tuple[Columns, ...], matrix: Float[Array, "*l inputs out"]
) -> dict[str, Array]:
    """The parameters that `pieces` lie in, with `matrix` in their place."""
    written, at = {}, 0
    for path, start, stop in pieces:
        part = matrix[..., at : at + stop - start]
        written[path] = flat[path].at[..., start:stop].set(part)
        at += stop - start
    return written


def _norms(matrix: Float[Array, "*l inputs out"]) -> Float[Array, "*l out"]:
    return jnp.linalg.norm(matrix, axis=-2)

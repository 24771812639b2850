"""LoRA (Hu et al. 2022) and DoRA (Liu et al. 2024): low-rank adapters as a tree of parameters.

The trained and saved tree is
  {"lora": {...: {"a": (inputs, rank), "b": (rank, outputs), "magnitude": (outputs,)}}, ...},
at the paths of the adapted matrices ("magnitude" with DoRA only), together with the parameters that
are trained in full, at their own paths. `merge` adds adapters to the frozen parameters. `attach`
stores them beside the parameters instead, and layers.Dense computes x W + (x a) b: needed for
dropout and for matrices in bfloat16.
"""

import itertools
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict
from jaxtyping import Array, Float

from vlc_jax.errors import UsageError, known

SHOWN = 8  # names in an error message
# the branch of the trained tree that holds the adapters
LORA = "lora"
# beside a kernel, the branch of the parameters that `attach` makes
ATTACHED = "adapter"
# Kernels of layers.Dense: all of the towers and of language models; heads have other layers, too.
_DENSE = r"(?!head/).*|head/(.*/)?(lm|projector)/.*"
# of a, with PEFT's names; b starts at zero
INITIALISATIONS = {
    # up to 1 / sqrt(inputs)
    "uniform": lambda key, shape: jax.random.uniform(key, shape, minval=-1) * shape[-2] ** -0.5,
    # standard deviation 1 / rank
    "gaussian": lambda key, shape: jax.random.normal(key, shape) / shape[-1],
}


PACKED = "query_key_value/kernel"
CONVOLUTION = "patch_embedding/convolution/kernel"


class Columns(NamedTuple):
    """Some columns of a kernel."""

    path: str
    start: int
    stop: int


class Slot(NamedTuple):
    """The location of a matrix in the parameters: columns of kernels, side by side.

    patch: above 1 for a patch embedding adapted as a convolution is in loralib: weights (outputs,
    channels, patch, patch) reshaped to (outputs * patch, channels * patch), here transposed.
    """

    columns: tuple[Columns, ...]
    patch: int = 1


def matrices(shapes: Mapping[str, Any]) -> dict[str, Slot]:
    """All matrices that can have an adapter: name -> location in the parameters.

    The name is the parameter's path. An attention layer has "query/kernel", "key/kernel" and
    "value/kernel", although keys and values share a parameter, and "query_key_value/kernel", all
    three as one matrix (torch's packed in_proj). A patch embedding has "patch_embedding/kernel", a
    dense layer over pixels, and "patch_embedding/convolution/kernel", where factors have `patch`
    times the rank, as in loralib's convolution.
    """
    slots = {}
    for path, leaf in flatten_dict(dict(shapes), sep="/").items():
        if not path.endswith("/kernel") or len(leaf.shape) < 2:
            continue
        width = leaf.shape[-1]
        if not path.endswith("/key_value/kernel"):
            slots[path] = Slot((Columns(path, 0, width),))
            if path.endswith("patch_embedding/kernel"):
                patch = math.isqrt(leaf.shape[0] // 3)
                slots[path.replace("patch_embedding/kernel", CONVOLUTION)] = Slot(
                    slots[path].columns, patch
                )
            continue
        attention = path.removesuffix("key_value/kernel")
        query = f"{attention}query/kernel"
        key_value = (Columns(path, 0, width // 2), Columns(path, width // 2, width))
        slots[f"{attention}key/kernel"], slots[f"{attention}value/kernel"] = (
            Slot((half,)) for half in key_value
        )
        slots[f"{attention}{PACKED}"] = Slot(
            (Columns(query, 0, width // 2), Columns(path, 0, width))
        )
    return slots


def init(
    key: jax.Array,
    params: Mapping[str, Any],
    *,
    targets: str,
    rank: int,
    dora: bool = False,
    initialisation: str = "uniform",
    b_initialisation: str = "zeros",
    full: str = "",
) -> dict[str, Any]:
    """The initial trained tree; it leaves the model unchanged unless b_initialisation is xavier.

    targets: regular expression of whole names in `matrices`.   rank: rank of every adapter.
    initialisation: initialiser of a: uniform | gaussian.   b_initialisation: zeros | xavier; with
    xavier, a and b of every "query_key_value/kernel" are Xavier-uniform, as in SVLC's code, which
    changes the model before its first step.   full: regular expression of whole paths of other
    parameters that are trained beside the adapters.
    Raises UsageError for an expression without matches, and for adapters that overlap.
    """
    known("initialisation of an adapter", initialisation, INITIALISATIONS)
    known("b_initialisation of an adapter", b_initialisation, ("zeros", "xavier"))
    flat = flatten_dict(dict(params), sep="/")
    chosen = _chosen(targets, matrices(params))
    trained = _matching(full, flat, "config.lora.full") if full else {}
    touched = {columns.path for slot in chosen.values() for columns in slot.columns}
    if both := sorted(touched & trained.keys()):
        raise UsageError(f"{both[0]} has an adapter and is in config.lora.full; choose one")
    is_xavier = {name: b_initialisation == "xavier" and name.endswith(PACKED) for name in chosen}
    if b_initialisation == "xavier" and not any(is_xavier.values()):
        raise UsageError(
            f"config.lora.b_initialisation 'xavier' needs matrices .*/{PACKED}; "
            f"config.lora.targets {targets!r} matches none"
        )
    keys = jax.random.split(key, len(chosen))
    for seed, (name, slot) in zip(keys, chosen.items(), strict=True):
        matrix = _read(flat, slot)
        *layers, inputs, outputs = matrix.shape
        _check(name, slot, min(inputs, outputs), rank, dora)
        inner = rank * slot.patch
        first, second = (*layers, inputs, inner), (*layers, inner, outputs)
        if is_xavier[name]:
            xavier = jax.nn.initializers.xavier_uniform()
            adapter = {"a": xavier(seed, first), "b": xavier(jax.random.fold_in(seed, 1), second)}
        else:
            adapter = {"a": INITIALISATIONS[initialisation](seed, first), "b": jnp.zeros(second)}
        if dora:
            adapter["magnitude"] = _norms(matrix)
        trained |= {f"{LORA}/{name}/{part}": value for part, value in adapter.items()}
    return unflatten_dict(trained, sep="/")


def _check(name: str, slot: Slot, smaller_side: int, rank: int, dora: bool) -> None:
    if not 0 < rank <= smaller_side:
        raise UsageError(
            f"config.lora.rank must be from 1 to {smaller_side}, the smaller side of {name}; got "
            f"{rank}"
        )
    if dora and slot.patch > 1:
        raise UsageError(
            f"DoRA has no columns in {name}; name the patch embedding's own kernel instead"
        )


def merge(params: Mapping[str, Any], trained: Mapping[str, Any], alpha: float) -> dict[str, Any]:
    """The parameters of the model: `params` plus the trained tree.

    LoRA: W + (alpha / rank) a b (equation 3).   DoRA: V = W + (alpha / rank) a b, with columns
    scaled to the length `magnitude`; no gradient flows through the lengths of V (section 4.3).
    """
    flat = flatten_dict(dict(params), sep="/")
    slots = matrices(params)
    flat |= flatten_dict({k: v for k, v in trained.items() if k != LORA}, sep="/")
    for name, adapter in adapters(trained).items():
        matrix = _read(flat, slots[name])
        scale = alpha * slots[name].patch / adapter["a"].shape[-1]
        # highest: accelerators would round the small factors to bfloat16 or TF32
        matrix += scale * jnp.matmul(adapter["a"], adapter["b"], precision="highest")
        if "magnitude" in adapter:
            length = jax.lax.stop_gradient(_norms(matrix))
            matrix *= (adapter["magnitude"] / length)[..., None, :]
        flat |= _written(flat, slots[name], matrix)
    return unflatten_dict(flat, sep="/")


def attach(params: Mapping[str, Any], trained: Mapping[str, Any], alpha: float) -> dict[str, Any]:
    """The parameters of the model with each adapter beside its kernel, below ATTACHED, where
    `adapted` reads it; parameters trained in full replace frozen ones, as in `merge`.

    The model is mathematically the same as with merged parameters, but no sum of kernel and adapter
    is rounded to the kernel's dtype, and no gradient of a whole kernel is computed.
    Raises UsageError for matrices outside layers.Dense.
    """
    flat = flatten_dict(dict(params), sep="/")
    slots = matrices(params)
    flat |= flatten_dict({k: v for k, v in trained.items() if k != LORA}, sep="/")
    beside: dict[str, list[dict[str, Array]]] = {}
    for name, adapter in adapters(trained).items():
        slot = slots[name]
        _check_attachable(name, slot, flat)
        b, first = alpha / adapter["a"].shape[-1] * adapter["b"], 0
        for path, start, stop in slot.columns:
            columns, width = slice(first, first + stop - start), flat[path].shape[-1]
            part = {"a": adapter["a"], "b": _columns(b[..., columns], start, width)}
            if "magnitude" in adapter:
                # 0 marks columns without an adapter, which `adapted` does not scale
                length = adapter["magnitude"][..., columns]
                part["magnitude"] = _columns(length, start, width)
            beside.setdefault(path, []).append(part)
            first += stop - start
    for path, parts in beside.items():
        whole = {
            "a": jnp.concatenate([part["a"] for part in parts], axis=-1),
            "b": jnp.concatenate([part["b"] for part in parts], axis=-2),
        }
        if "magnitude" in parts[0]:
            whole["magnitude"] = sum(part["magnitude"] for part in parts)
        module = path.removesuffix("kernel")
        flat |= {f"{module}{ATTACHED}/{part}": value for part, value in whole.items()}
    return unflatten_dict(flat, sep="/")


def with_dropout(params: Mapping[str, Any], rate: float, key: jax.Array) -> dict[str, Any]:
    """`params` of `attach` with a random key beside each adapter: inputs of its `a` are dropped
    with probability `rate`, the others scaled by 1 / (1 - rate).

    Dropout masks are a function of `key` and differ between adapted layers.
    """
    flat = flatten_dict(dict(params), sep="/")
    branches = [path.removesuffix("/a") for path in flat if path.endswith(f"/{ATTACHED}/a")]
    for index, branch in enumerate(branches):
        # scanned layers, each with a key of its own
        layers = flat[f"{branch}/a"].shape[:-2]
        keys = jax.random.split(jax.random.fold_in(key, index), layers)
        flat[f"{branch}/key"] = jax.random.key_data(keys)
        flat[f"{branch}/kept"] = jnp.full(layers, 1 - rate)
    return unflatten_dict(flat, sep="/")


def adapted(
    x: Float[Array, "*rows inputs"],
    y: Float[Array, "*rows out"],
    kernel: Float[Array, "inputs out"],
    adapter: Mapping[str, Array],
) -> Float[Array, "*rows out"]:
    """The product of x with an adapted matrix; y = x W is the product with the kernel alone.

    LoRA: y + (x' a) b, with x' = dropout(x).   DoRA: y + (m / n - 1) x' W + m / n (x' a) b, as in
    PEFT, where n, the lengths of the columns of W + a b, are constants for the gradient.
    """
    dropped = x
    if "key" in adapter:
        keep_rate = adapter["kept"].astype(x.dtype)
        mask = jax.random.bernoulli(
            jax.random.wrap_key_data(adapter["key"]), adapter["kept"], x.shape
        )
        dropped = jnp.where(mask, x / keep_rate, jnp.zeros((), x.dtype))
    a, b = adapter["a"], adapter["b"]
    low_rank = dropped @ a.astype(x.dtype) @ b.astype(x.dtype)
    if "magnitude" not in adapter:
        return y + low_rank
    whole = kernel.astype(jnp.float32) + jnp.matmul(a, b, precision="highest")
    magnitude = adapter["magnitude"]
    scale = jnp.where(magnitude == 0, 1.0, magnitude / jax.lax.stop_gradient(_norms(whole)))
    scale = scale.astype(x.dtype)[(None,) * (y.ndim - 1)]
    base = y if dropped is x else dropped @ kernel.astype(x.dtype)
    return y + (scale - 1) * base + scale * low_rank


def needs_factors(params: Mapping[str, Any], trained: Mapping[str, Any]) -> bool:
    """True if merging would round: a kernel with an adapter has a dtype below float32."""
    flat, slots = flatten_dict(dict(params), sep="/"), matrices(params)
    paths = (columns.path for name in adapters(trained) for columns in slots[name].columns)
    return any(flat[path].dtype != jnp.float32 for path in paths)


def adapters(trained: Mapping[str, Any]) -> dict[str, dict[str, Array]]:
    """The adapters of a trained tree: name of the matrix -> its parts."""
    flat = flatten_dict(dict(trained[LORA]), sep="/")
    by_matrix: dict[str, dict[str, Array]] = {}
    for path, value in flat.items():
        name, _, part = path.rpartition("/")
        by_matrix.setdefault(name, {})[part] = value
    return by_matrix


def _check_attachable(name: str, slot: Slot, flat: Mapping[str, Array]) -> None:
    path = slot.columns[0].path
    if slot.patch > 1 or flat[path].ndim > 3 or not re.fullmatch(_DENSE, path):
        raise UsageError(
            f"config.lora.dropout and matrices in bfloat16 need dense layers of a tower or of a "
            f"decoder, and {name} is not one: set config.lora.dropout=0, or leave it out of "
            "config.lora.targets"
        )


def _columns(part: Float[Array, "*l columns"], start: int, width: int) -> Float[Array, "*l out"]:
    """`part` at columns start, start + 1, ... of `width`, zeros elsewhere."""
    after = width - start - part.shape[-1]
    return jnp.pad(part, [*[(0, 0)] * (part.ndim - 1), (start, after)])


def _chosen(targets: str, slots: Mapping[str, Slot]) -> dict[str, Slot]:
    chosen = _matching(targets, slots, "config.lora.targets")
    targeted = [(columns, name) for name, slot in chosen.items() for columns in slot.columns]
    for (one, name), (other, second) in itertools.combinations(targeted, 2):
        if one.path == other.path and one.start < other.stop and other.start < one.stop:
            raise UsageError(
                f"config.lora.targets matches {name} and {second}, which overlap; choose one"
            )
    return chosen


def _matching(regex: str, names: Mapping[str, Any], field: str) -> dict[str, Any]:
    try:
        matches = {name: value for name, value in names.items() if re.fullmatch(regex, name)}
    except re.error as error:
        raise UsageError(f"{field} {regex!r} is no regular expression: {error}") from error
    if not matches:
        listing = ", ".join(list(names)[:SHOWN])
        raise UsageError(f"{field} {regex!r} matches no whole name of {len(names)}: {listing}, ...")
    return matches


def _read(flat: Mapping[str, Array], slot: Slot) -> Float[Array, "*l inputs out"]:
    parts = [flat[path][..., start:stop] for path, start, stop in slot.columns]
    matrix, patch = jnp.concatenate(parts, axis=-1), slot.patch
    if patch == 1:
        return matrix
    kernel = matrix.reshape(patch, patch, -1, matrix.shape[-1])  # row, column, channel, output
    return kernel.transpose(3, 2, 0, 1).reshape(-1, kernel.shape[2] * patch).T


def _written(
    flat: Mapping[str, Array], slot: Slot, matrix: Float[Array, "*l inputs out"]
) -> dict[str, Array]:
    """The parameters at `slot`, replaced by `matrix`."""
    if slot.patch > 1:
        patch, outputs = slot.patch, matrix.shape[-1] // slot.patch
        kernel = matrix.T.reshape(outputs, -1, patch, patch)
        matrix = kernel.transpose(2, 3, 1, 0).reshape(-1, outputs)
    written, first = {}, 0
    for path, start, stop in slot.columns:
        part = matrix[..., first : first + stop - start]
        # the sum of a bfloat16 kernel and its adapter is rounded to bfloat16
        kernel = flat[path]
        written[path] = kernel.at[..., start:stop].set(part.astype(kernel.dtype))
        first += stop - start
    return written


def _norms(matrix: Float[Array, "*l inputs out"]) -> Float[Array, "*l out"]:
    return jnp.linalg.norm(matrix, axis=-2)

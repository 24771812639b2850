"""The parameters of a model, split into trained and frozen ones."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from vlc_jax import models
from vlc_jax.devices import sharding
from vlc_jax.errors import DivergedError, UsageError
from vlc_jax.models import lora

TOWERS = ("image", "text")
LARGE = 2**26  # parameters that are drawn one by one, on the host
_ALL_BUT_LAST = re.compile(r"all_but_last_(\d+)")


class Parameters(NamedTuple):
    """The parameters of a model, split into trained and frozen ones.

    seed: seed of the initialisation.   shapes: shapes of all parameters, from jax.eval_shape.
    frozen: regexes of whole paths ("logit_scale", "text/block_[0-5]/.*"); the name of a part, such
      as "image", matches everything below it, and all_but_last_N the embeddings and blocks of both
      towers up to the last N blocks. Frozen parameters have no gradient and no optimizer
      state, and are not in the checkpoints.
    lora: options of an adapter (`models.lora.init`, alpha and dropout); only the adapter is trained
      then, and all parameters of the model are frozen. None: no adapter.
    """

    model: nn.Module
    seed: int
    shapes: Mapping[str, Any]
    frozen: tuple[str, ...] = ()
    lora: Mapping[str, Any] | None = None

    @property
    def has_frozen(self) -> bool:
        """True if some parameters are frozen and therefore not in the training state."""
        return bool(self.frozen or self.lora)

    def init(self) -> dict[str, Any]:
        """All parameters of the model, drawn from the seed."""
        return models.init(self.model, jax.random.key(self.seed))

    def init_large(self) -> dict[str, Any]:
        """`init`, up to rounding, of a large model without frozen parameters; else {}. Numpy
        arrays, drawn by the CPU one by one: a GPU's compiler takes minutes for a ViT-L/14."""
        if self.has_frozen or _size(self.shapes) < LARGE:
            return {}
        with sharding.on_host():
            key = jax.random.key(self.seed)
            batch = jax.eval_shape(lambda: models.example_batch(self.model))
            params = self.model.lazy_init({"params": key, "dropout": key}, batch)["params"]
        return jax.tree.map(np.asarray, params)

    def init_batch_stats(self) -> dict[str, Any]:
        """Running statistics of the model before the first step."""
        return models.init_batch_stats(self.model)

    def split(self, params: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """(trained, frozen) parts of a tree of all parameters, or of their shapes."""
        if self.lora:
            return {}, dict(params)
        leaves = traverse_util.flatten_dict(params, sep="/")
        frozen = {path: leaf for path, leaf in leaves.items() if self._is_frozen(path)}
        trained = {path: leaf for path, leaf in leaves.items() if path not in frozen}
        return tuple(traverse_util.unflatten_dict(part, sep="/") for part in (trained, frozen))

    def check_frozen(self) -> None:
        """Raises UsageError for a rule without matches (a misspelt regex would train parameters
        that should stay frozen), if no trained parameter is left, and for trained parameters in
        bfloat16.
        """
        paths = list(traverse_util.flatten_dict(self.shapes, sep="/"))
        for rule in self.frozen:
            # a tower may match nothing: one of precomputed text vectors can be without parameters
            if rule not in TOWERS and not any(self._matches(rule, path) for path in paths):
                raise UsageError(
                    f"config.frozen: {rule!r} matches no parameter; parts are "
                    f"{', '.join(self.shapes)}, paths begin with them: {paths[0]}"
                )
        trained = self.trained_shapes()
        if not jax.tree.leaves(trained):
            raise UsageError("config.frozen freezes every parameter; nothing to train")
        for path, leaf in traverse_util.flatten_dict(trained, sep="/").items():
            # bfloat16 would round away updates of a thousandth
            if leaf.dtype != jnp.float32:
                raise UsageError(
                    f"{path} has dtype {leaf.dtype}; only frozen parameters may: train an "
                    "adapter (config.lora), freeze it, or set config.model.head.param_dtype=float32"
                )

    def init_trained(self, frozen: Any) -> dict[str, Any]:
        """The trained parameters before the first step; an adapter is initialised for `frozen`."""
        if self.lora:
            options = {k: value for k, value in self.lora.items() if k not in ("alpha", "dropout")}
            return lora.init(jax.random.key(self.seed), frozen, **options)
        return self.split(self.init())[0]

    def trained_shapes(self) -> Any:
        """Shapes of the trained parameters."""
        if self.lora:
            return jax.eval_shape(self.init_trained, self.shapes)
        return self.split(self.shapes)[0]

    def merge(self, frozen: Any, trained: Any) -> dict[str, Any]:
        """All parameters of the model, from frozen and trained ones."""
        if self.lora:
            return lora.merge(frozen, trained, self.lora["alpha"])
        return merge_trees(frozen, trained)

    def for_step(self, frozen: Any, trained: Any) -> dict[str, Any]:
        """Parameters for a training step: as `merge`, but adapters with dropout, or of matrices
        below float32, stay beside the matrices (`models.lora.attach`)."""
        if self.lora and (self.dropout or lora.needs_factors(frozen, trained)):
            return lora.attach(frozen, trained, self.lora["alpha"])
        return self.merge(frozen, trained)

    def with_dropout(self, params: Any, key: jax.Array) -> Any:
        """`params` of `for_step` with the dropout of config.lora, drawn from `key`."""
        return lora.with_dropout(params, self.dropout, key) if self.dropout else params

    @property
    def dropout(self) -> float:
        """Dropout rate of adapter inputs in training."""
        return self.lora["dropout"] if self.lora else 0.0

    def count(self, frozen: Any, trained: Any) -> dict[str, int]:
        """Parameter counts of the towers, of the head, in total, and of trained parameters."""
        full = jax.eval_shape(self.merge, frozen, trained)
        return {**models.parameter_counts(full), "trained": _size(trained)}

    def _is_frozen(self, path: str) -> bool:
        return any(self._matches(rule, path) for rule in self.frozen)

    def _matches(self, rule: str, path: str) -> bool:
        if not (match := _ALL_BUT_LAST.fullmatch(rule)):
            return path.startswith(f"{rule}/") or re.fullmatch(rule, path) is not None
        tower, _, name = path.partition("/")
        parts = self.shapes[tower] if tower in TOWERS else ()
        blocks = [each for each in parts if each.startswith("block_")]
        number = re.match(r"block_(\d+)/", name)
        if not blocks:
            return False
        if number:
            return int(number[1]) < len(blocks) - int(match[1])
        return "embedding" in name or name.startswith("pre_norm")


def _size(tree: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def merge_trees(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """The nested dict with the leaves of both; leaves of `b` win."""
    leaves = traverse_util.flatten_dict(a, sep="/") | traverse_util.flatten_dict(b, sep="/")
    return traverse_util.unflatten_dict(leaves, sep="/")


def fingerprint(params: Any) -> str:
    """Hash of all values of a tree of arrays, 16 hexadecimal digits, the same on any devices.

    Sums of hashed bits modulo 2**32 do not depend on the order, hence not on the mesh.
    """
    leaves = jax.tree.leaves(params)
    if _are_on_host(leaves):
        sums = [_sum_on_host(np.asarray(x)) for x in leaves]
    else:
        sums = _sums_of_hashes(leaves)
    return hashlib.sha256(np.array([int(x) for x in sums], np.uint32)).hexdigest()[:16]


def require_finite(params: Any) -> None:
    """Raises DivergedError, naming the first one, if parameters have NaN or infinite values."""
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    leaves = jax.tree.leaves(params)
    if _are_on_host(leaves):
        bad = [(~np.isfinite(x)).sum() for x in map(np.asarray, leaves)]
    else:
        bad = _numbers_not_finite(leaves)
    for path, x, number in zip(paths, leaves, map(int, bad), strict=True):
        if number:
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            raise DivergedError(
                f"parameters must be finite; {number:,} of {np.size(x):,} values of {name} are "
                "not: they have diverged or are damaged, take an earlier checkpoint"
            )


@jax.jit
def _numbers_not_finite(leaves: Sequence[jax.Array]) -> list[jax.Array]:
    return [(~jnp.isfinite(x)).sum() for x in leaves]


def _are_on_host(leaves: Sequence[Any]) -> bool:
    """True if numpy reads the arrays without a copy, and without compiling, which takes seconds."""
    return all(not isinstance(x, jax.Array) or sharding.is_on_cpu_here(x) for x in leaves)


def _sum_on_host(x: np.ndarray) -> np.uint32:
    bits = np.ascontiguousarray(x, np.float32).ravel().view(np.uint32)
    return _sum_of_hashes(bits, np.arange(x.size, dtype=np.uint32))


@jax.jit
def _sums_of_hashes(leaves: Sequence[jax.Array]) -> list[jax.Array]:
    sums = []
    for x in leaves:
        position = jnp.zeros(x.shape, jnp.uint32)  # in the flat array
        for axis, size in enumerate(x.shape):
            position = position * size + jax.lax.broadcasted_iota(jnp.uint32, x.shape, axis)
        bits = jax.lax.bitcast_convert_type(x.astype(jnp.float32), jnp.uint32)
        sums.append(_sum_of_hashes(bits, position))
    return sums


def _sum_of_hashes(bits: Any, position: Any) -> Any:
    """Sum of the hashes of bits and positions: uint32 arrays of numpy or of JAX."""
    # the last steps of MurmurHash3 (Appleby, public domain): every bit changes half of the others
    mixed = bits ^ (position * np.uint32(0x9E3779B1))
    for factor, shift in ((0x85EBCA6B, 13), (0xC2B2AE35, 16)):
        mixed = mixed * np.uint32(factor)
        mixed = mixed ^ (mixed >> np.uint32(shift))
    return mixed.sum(dtype=np.uint32)

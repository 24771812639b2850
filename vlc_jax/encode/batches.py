"""A method of the model on any number of items: numpy in, numpy out, in batches of one size."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from flax import linen as nn

from vlc_jax.devices import sharding
from vlc_jax.encode.feature_cache import FeatureCache
from vlc_jax.encode.interrupt import NEVER, Interrupt
from vlc_jax.errors import DivergedError
from vlc_jax.types.setup import Setup

Rows = dict[str, np.ndarray]

# Batches that are read ahead: one is decoded while the next one waits for the device.
AHEAD = 2
T = TypeVar("T")


def compiled(setup: Setup, method: Callable[..., Any]) -> Callable[..., Any]:
    """method(model, *inputs) as a compiled function of (variables, *inputs), results replicated.

    variables: {"params": ...}, and "batch_stats" for a method that scores.
    method: such as `lambda model, text: model.encode_text(text)`.
    """
    # replicated: every process reads the whole result without another collective
    run = jax.jit(
        lambda variables, *inputs: nn.apply(method, setup.model)(variables, *inputs),
        out_shardings=sharding.replicated(setup.mesh),
    )

    def call(variables: Any, *inputs: Any) -> Any:
        # models shard activations by the names of mesh axes (types.shard_batch)
        with jax.set_mesh(setup.mesh):
            return run(variables, *inputs)

    return call


def read_ahead(reader: Iterator[T], interrupt: Interrupt = NEVER) -> Iterator[T]:
    """Yields the items of `reader`, which a thread reads up to AHEAD items ahead."""
    pool = ThreadPoolExecutor(max_workers=1)
    try:
        ahead = [pool.submit(next, reader, None) for _ in range(AHEAD)]
        while (item := interrupt.call(ahead.pop(0).result)) is not None:
            ahead.append(pool.submit(next, reader, None))
            yield item
    finally:
        # wait=False: a hanging storage must not block here
        pool.shutdown(wait=False, cancel_futures=True)


def by_length(lengths: Sequence[int], size: int) -> Iterator[tuple[int, list[int], list[int]]]:
    """Batches of items of one length: yields (length, indices, indices padded to `size`).

    A batch is padded with copies of its last item, so that each length compiles one program.
    """
    groups: dict[int, list[int]] = {}
    for index, length in enumerate(lengths):
        groups.setdefault(length, []).append(index)
    for length, indices in sorted(groups.items()):
        for start in range(0, len(indices), size):
            batch = indices[start : start + size]
            yield length, batch, batch + batch[-1:] * (size - len(batch))


def padded(
    rows: Sequence[Sequence[int]], length: int, *, is_left: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Token ids (rows, length), padded with 0 on the right or left, and the mask of tokens."""
    shape = len(rows), length
    ids, valid = np.zeros(shape, np.int32), np.zeros(shape, bool)
    for number, row in enumerate(rows):
        columns = slice(length - len(row), None) if is_left else slice(len(row))
        ids[number, columns], valid[number, columns] = row, True
    return ids, valid


class Batch(NamedTuple):
    """Rows of one forward pass.

    indices: of its items among all items; fewer than rows if the last item pads the batch.
    rows: name -> rows of this process.
    """

    indices: Sequence[int]
    rows: Rows


class Lengths(NamedTuple):
    """Batches of items of one length.

    find: rows of `load` -> needed number of columns of each (pixel rows of an image).
    columns: columns of an item up to which a batch has the full number of rows; longer items have
      fewer rows, in proportion. None: all have as many.
    is_mixed: the last items of all lengths, fewer than a batch of each, share batches of the
      longest among them: few items compile one program, but their rounding depends on the others.
    """

    find: Callable[[Rows], Sequence[int]]
    columns: int | None = None
    is_mixed: bool = False


def text_lengths(setup: Setup, *, is_mixed: bool = False) -> Lengths | None:
    """Lengths of the texts of a model; None if its features read the padding behind a text.

    In a causal tower no token attends to later ones, so that features pooled at the end token read
    no padding. A bidirectional tower (SigLIP) attends to padding, and heads that read tokens may
    read padding tokens (DCSM reads all columns).
    """
    text, head = setup.model.text, setup.model.head
    if not (text.takes_shorter and head.requests[1].tokens == "none"):
        return None
    find = partial(short_lengths, eos_id=text.eos_id, lengths=lengths_up_to(text.context_length))
    return Lengths(find, is_mixed=is_mixed)


def lengths_up_to(context_length: int) -> tuple[int, ...]:
    """The lengths to which texts are cut, up to `context_length`.

    Each length compiles a program: they are few, and each saves at least a quarter of the columns.
    """
    shorter = (n for n in (16, 32, 48, 64, 96, 128, 192) if 4 * n <= 3 * context_length)
    return (*shorter, context_length)


def short_lengths(rows: Rows, eos_id: int, lengths: Sequence[int]) -> list[int]:
    """For each text the smallest of `lengths` that reaches its first end token.

    It depends on the text alone: another length sums in another order, and features of an
    evaluation must not depend on its other texts.
    """
    is_end = rows["text"] == eos_id
    needed = np.where(is_end.any(axis=1), is_end.argmax(axis=1) + 1, lengths[-1])
    return [lengths[i] for i in np.searchsorted(lengths, needed)]


class BatchEncoder:
    """Applies a method of the model to any number of items, in batches of one size.

    The next batches are read while one is computed.

    Args:
      setup: of the model; config.eval.batch_size is the number of rows over all devices, rounded
        up to a multiple of their number.
      method: (model, batch of rows) -> features, a tree of arrays with as many rows.
      load: items -> {name: numpy rows}; each process loads only its rows of every batch.
      interrupt: checked before each batch, and able to stop the wait for `load`.
      lengths: of items; every process then loads the items of all processes. None: rows have one
        length.
      cache: of features; None: all items are encoded.
      count: called with the number of items of each encoded batch.

    Raises DivergedError for embeddings that are not finite.
    """

    def __init__(
        self,
        setup: Setup,
        method: Callable[..., Any],
        load: Callable[[Sequence[Any]], Rows],
        *,
        interrupt: Interrupt = NEVER,
        lengths: Lengths | None = None,
        cache: FeatureCache | None = None,
        count: Callable[[int], None] = lambda number: None,
    ):
        size, groups = setup.evaluation.batch_size, sharding.row_groups(setup.mesh)
        # rounded up: every device computes as many rows
        self._size = -(-size // groups) * groups
        self._groups = groups
        self._encode, self._mesh = compiled(setup, method), setup.mesh
        self._load, self._interrupt, self.cache, self._count = load, interrupt, cache, count
        self._read = partial(self._by_length, lengths) if lengths else self._in_order

    def __call__(self, variables: Any, items: Sequence[Any]) -> Any:
        """Features of all items, as numpy, in their order."""
        if self.cache is not None:
            return self.cache.features(items, partial(self.batches, variables))
        parts = list(self.batches(variables, items))
        features = jax.tree.map(lambda *x: np.concatenate(x), *(part for _, part in parts))
        order = np.argsort(np.concatenate([indices for indices, _ in parts]))
        # sorting would copy all features, which are large with tokens
        if (order == np.arange(len(order))).all():
            return features
        return jax.tree.map(lambda x: x[order], features)

    def batches(self, variables: Any, items: Sequence[Any]) -> Iterator[tuple[Sequence[int], Any]]:
        """Yields (indices of items, their features as numpy) of one batch after another."""
        computed = None
        # closing: after an error no further batch is read
        with contextlib.closing(read_ahead(self._read(items), self._interrupt)) as batches:
            for batch in batches:
                self._interrupt.check()
                rows = sharding.put_batch(self._mesh, batch.rows)
                # read after the next batch is dispatched: the device does not wait for the host
                waiting, computed = computed, (batch.indices, self._encode(variables, rows))
                if waiting:
                    yield self._on_host(*waiting)
        if computed:
            yield self._on_host(*computed)

    def _on_host(self, indices: Sequence[int], features: Any) -> tuple[Sequence[int], Any]:
        features = jax.tree.map(lambda x: np.asarray(x)[: len(indices)], features)
        is_finite = np.isfinite(features.pooled).all(axis=1)
        if not is_finite.all():
            raise DivergedError(
                f"embeddings must be finite; {(~is_finite).sum()} of a batch of {len(indices)} are "
                "not, though the parameters are: set config.model.dtype=float32"
            )
        self._count(len(indices))
        return indices, features

    def _in_order(self, items: Sequence[Any]) -> Iterator[Batch]:
        for start in range(0, len(items), self._size):
            indices = range(start, min(start + self._size, len(items)))
            yield Batch(indices, self._load([items[i] for i in self._local(indices, self._size)]))

    def _by_length(self, lengths: Lengths, items: Sequence[Any]) -> Iterator[Batch]:
        waiting: dict[int, list[tuple[int, int, Rows]]] = {}
        for start in range(0, len(items), self._size):
            rows = self._load(items[start : start + self._size])
            for row, columns in enumerate(lengths.find(rows)):
                whole = {name: x[row] for name, x in rows.items()}
                waiting.setdefault(columns, []).append((columns, start + row, whole))
            for columns, group in waiting.items():
                while len(group) >= (size := self._rows(columns, lengths)):
                    yield self._stacked(group[:size], size)
                    waiting[columns] = group = group[size:]
        groups = [group for _, group in sorted(waiting.items())]
        for group in [list(itertools.chain(*groups))] if lengths.is_mixed else groups:
            size = self._rows(group[-1][0], lengths) if group else 1
            for start in range(0, len(group), size):
                yield self._stacked(group[start : start + size], size)

    def _rows(self, columns: int, lengths: Lengths) -> int:
        """Rows of a batch of items of this length."""
        if lengths.columns is None:
            return self._size
        each = self._size // self._groups * lengths.columns // columns
        return min(self._size, self._groups * max(1, each))

    def _stacked(self, group: Sequence[tuple[int, int, Rows]], size: int) -> Batch:
        """A batch of items in ascending length, cut to the longest."""
        columns, local = group[-1][0], self._local([rows for *_, rows in group], size)
        stacked = {
            # the length is that of a text, or of an image, not of the question about it
            name: np.stack([x[name] if name == "question" else x[name][:columns] for x in local])
            for name in local[0]
        }
        return Batch([index for _, index, _ in group], stacked)

    def _local(self, batch: Sequence[Any], size: int) -> list[Any]:
        """This process's part of a batch of `size` rows, padded with its last item, so that one
        shape compiles."""
        local = size // jax.process_count()
        # the order of rows over processes is that of sharding.put_batch
        first = jax.process_index() * local
        return [batch[min(first + i, len(batch) - 1)] for i in range(local)]

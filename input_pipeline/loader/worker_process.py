"""A loader's worker process: makes batches and sends them to its parent."""

import collections
import contextlib
import itertools
import pickle
import socket
import traceback
from collections.abc import Iterator, Sequence
from concurrent import futures
from typing import Any

from vlc_jax.input_pipeline.loader import worker_channel


def run(connection: socket.socket) -> None:
    """Makes every `stride`-th batch and sends it, in order, until the parent is gone.

    The parent sends (pickled sequence indexed by step, first step, stride, threads) and receives
    one value per batch. If a batch cannot be made, it receives the exception as the last value.
    """
    # socket errors: the parent closed it or died
    with contextlib.suppress(EOFError, OSError):
        try:
            pickled, first, stride, threads = worker_channel.receive(connection)
            made = _batches(pickle.loads(pickled), first, stride, threads)
        except Exception as error:
            made = iter([_portable(error)])
        for value in made:
            worker_channel.send(connection, value)


def _batches(
    steps: Sequence[dict[str, Any]], first: int, stride: int, threads: int
) -> Iterator[dict[str, Any] | Exception]:
    pool = futures.ThreadPoolExecutor(threads)
    upcoming = itertools.count(first, stride)
    pending: collections.deque[futures.Future] = collections.deque()
    while True:
        # One more than threads: they stay busy while a batch waits for the parent to read it.
        while len(pending) <= threads:
            pending.append(pool.submit(steps.__getitem__, next(upcoming)))
        try:
            yield pending.popleft().result()
        except Exception as error:
            pool.shutdown(wait=False, cancel_futures=True)
            yield _portable(error)
            return


def _portable(error: Exception) -> Exception:
    """The exception with its traceback as a note; a RuntimeError with the text if unpicklable."""
    text = "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(text)
    error.add_note(f"in a loader worker:\n{text}")
    return error

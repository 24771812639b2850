"""Values sent between a loader and its worker processes, over a socket.

Arrays are sent as raw memory. A socket rather than shared memory: the system frees it whichever
processes are killed, whereas objects in /dev/shm stay behind, and a full /dev/shm kills the writer.
"""

import pickle
import socket
import struct
from typing import Any

import numpy as np

_SIZE = struct.Struct("!Q")


def send(connection: socket.socket, value: Any) -> None:
    """Sends one picklable value. Raises OSError if the other side is gone."""
    arrays: list[memoryview] = []
    data = pickle.dumps(value, protocol=5, buffer_callback=lambda b: arrays.append(b.raw()))
    parts = [memoryview(data), *arrays]
    sizes = b"".join(_SIZE.pack(part.nbytes) for part in parts)
    for part in (_SIZE.pack(len(parts)), sizes, *parts):
        connection.sendall(part)


def receive(connection: socket.socket) -> Any:
    """The next value, its arrays in newly allocated memory.

    Raises EOFError or OSError if the other side is gone.
    """
    (count,) = _SIZE.unpack(_receive_bytes(connection, _SIZE.size))
    sizes = _SIZE.iter_unpack(_receive_bytes(connection, count * _SIZE.size))
    data, *arrays = [_receive_bytes(connection, size) for (size,) in sizes]
    return pickle.loads(data, buffers=arrays)


def _receive_bytes(connection: socket.socket, size: int) -> memoryview:
    # bytearray would fill it with zeros first
    data = memoryview(np.empty(size, np.uint8))
    received = 0
    while received < size:
        # the flag saves a call for every 200 kB; a call may still return early
        count = connection.recv_into(data[received:], 0, socket.MSG_WAITALL)
        if not count:
            raise EOFError("the other side of the socket is gone")
        received += count
    return data

"""Zip archives in memory, and tensors as torch pickles them, without torch, whose archives
tests/weights/conftest.py writes.
"""

import io
import zipfile

import numpy as np


class Tensor:
    """A view of a storage, pickled the way torch does."""

    def __init__(self, storage, offset, shape, strides):
        self.storage, self.offset, self.shape, self.strides = storage, offset, shape, strides


def tensor(array):
    array = np.array(array, order="C")
    strides = tuple(step // array.itemsize for step in array.strides)
    return Tensor(array.reshape(-1), 0, array.shape, strides)


def zipped(members, method=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()

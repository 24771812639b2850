"""Files of weights: what is read from each kind, and that a damaged or malicious one is refused."""

import collections
import json
import os
import pickle
import re
import sys
import zipfile

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.support import helpers
from tests.support.archives import Tensor, tensor
from vlc_jax.errors import WeightsError
from vlc_jax.weights import files, torch_archive


def test_a_torch_archive_gives_its_tensors(torch_save):
    rng = np.random.default_rng(0)
    arrays = {
        "plain": rng.normal(size=(3, 4)).astype(np.float32),
        "half": rng.normal(size=5).astype(np.float16),
        "brain": rng.normal(size=(2, 2)).astype(ml_dtypes.bfloat16),
        "scalar": np.float32(2.5).reshape(()),
        "whole": np.arange(3),
    }
    content = collections.OrderedDict((k, tensor(v)) for k, v in arrays.items())
    base = np.arange(12, dtype=np.float32)
    content["view"] = Tensor(base, 1, (2, 3), (1, 4))  # a transposed slice
    read = torch_archive.read(torch_save(content))
    for name, array in arrays.items():
        assert read[name].dtype == array.dtype
        np.testing.assert_array_equal(read[name], array)
    np.testing.assert_array_equal(read["view"], [[1, 5, 9], [2, 6, 10]])


def test_trainers_wrappers_are_dropped_and_other_entries_left(torch_save):
    state = {"module.a": tensor(np.ones(2, np.float32))}
    path = torch_save({"epoch": 3, "name": "x", "state_dict": state, "optimizer": {"lr": 0.1}})
    assert list(files.read(path)) == ["a"]


def test_a_torchscript_archive_gives_the_tensors_of_its_modules(torch_save):
    inner, outer = torch_save.module_kind(), torch_save.module_kind()
    inner.__dict__ = {"weight": tensor(np.ones((2, 3), np.float16)), "training": False}
    outer.__dict__ = {"visual": inner, "logit_scale": tensor(np.float32(4.6).reshape(()))}
    read = files.read(torch_save(outer))
    assert {k: v.shape for k, v in read.items()} == {"visual.weight": (2, 3), "logit_scale": ()}


@pytest.fixture
def malicious(tmp_path):
    """An object whose pickle asks to make a folder, which is not there after the test."""

    class Malicious:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "owned"),)

    yield Malicious()
    assert not (tmp_path / "owned").exists()


def test_a_pickle_that_wants_to_run_something_is_refused_and_runs_nothing(torch_save, malicious):
    path = torch_save({"a": tensor(np.ones(2, np.float32)), "b": malicious})
    with pytest.raises(WeightsError, match=r"asks to run posix\.mkdir"):
        files.read(path)


def test_objects_that_are_asked_for_are_inert(torch_save, malicious):
    class Tokenizer(dict):
        def __init__(self):
            self.pattern, self.names = re.compile("a|b"), {"a", "b"}
            self["word"] = 3

    Tokenizer.__module__, Tokenizer.__qualname__ = "torch", "Tokenizer"
    sys.modules["torch"].Tokenizer = Tokenizer
    content = {
        "a": tensor(np.ones(2, np.float32)),
        "b": malicious,
        "c": [Tokenizer(), collections.deque([1])],
    }
    path = torch_save(content)
    read = torch_archive.content(path, may_hold_objects=True)
    np.testing.assert_array_equal(read["a"], [1, 1])
    assert [type(x) for x in (read["b"], *read["c"])] == [torch_archive.Inert] * 3


@pytest.mark.parametrize(
    ("offset", "shape", "strides"), [(0, (5,), (1,)), (3, (2,), (1,)), (0, (2, 2), (3, 1)),
                                     (-1, (2,), (1,)), (0, (2,), (-1,))]
)  # fmt: skip
def test_a_tensor_outside_its_storage_is_refused(torch_save, offset, shape, strides):
    path = torch_save({"a": Tensor(np.ones(4, np.float32), offset, shape, strides)})
    with pytest.raises(WeightsError, match="outside its storage"):
        files.read(path)


def test_a_storage_with_too_few_bytes_is_refused(torch_save, tmp_path):
    path = torch_save({"a": tensor(np.ones(10, np.float32))})
    short = tmp_path / "short.pt"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(short, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, data[:-4] if "/data/" in name else data)
    with pytest.raises(WeightsError, match="storage 0 has 36 bytes of 40"):
        files.read(short)


def test_an_old_torch_file_or_any_other_is_refused(tmp_path):
    (tmp_path / "old.pt").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(WeightsError, match=r"torch 1\.6 or later"):
        files.read(tmp_path / "old.pt")
    (tmp_path / "a.txt").write_text("x")
    for path, words in (
        (tmp_path / "a.txt", "none of .safetensors"),
        (tmp_path / "no.pt", "no weights at"),
        (tmp_path, "holds no weights; looked for model.safetensors"),
    ):
        with pytest.raises(WeightsError, match=words):
            files.read(path)
    np.savez(tmp_path / "objects.npz", a=np.array([{}], dtype=object))
    with pytest.raises(WeightsError, match="more than arrays"):
        files.read(tmp_path / "objects.npz")


def test_folders_with_one_file_or_with_shards(tmp_path):
    one, many = tmp_path / "one", tmp_path / "many"
    one.mkdir()
    many.mkdir()
    save_file({"a": np.ones(2, np.float32)}, one / "model.safetensors")
    assert list(files.read(one)) == ["a"]
    save_file({"a": np.ones(2, np.float32)}, many / "x1.safetensors")
    save_file({"b": np.ones(3, np.float32)}, many / "x2.safetensors")
    index = {"weight_map": {"a": "x1.safetensors", "b": "x2.safetensors"}}
    (many / "model.safetensors.index.json").write_text(json.dumps(index))
    assert sorted(files.read(many)) == ["a", "b"]
    (many / "x2.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"x2\.safetensors"):
        files.read(many)


@pytest.mark.parametrize("kind", ["safetensors", "npz", "pt", "folder"])
def test_shapes_are_read_without_values(torch_save, tmp_path, kind):
    arrays = {"a": np.ones((1024, 1024), np.float32), "b": np.ones((2, 3), np.float16)}
    path = tmp_path / f"weights.{kind}"
    if kind == "safetensors":
        save_file(arrays, path)
    elif kind == "npz":
        np.savez(path, **arrays)
    elif kind == "pt":
        path = torch_save({"state_dict": {name: tensor(array) for name, array in arrays.items()}})
    else:
        path.mkdir()
        for name, array in arrays.items():
            save_file({name: array}, path / f"{name}.safetensors")
        index = {"weight_map": {name: f"{name}.safetensors" for name in arrays}}
        (path / "model.safetensors.index.json").write_text(json.dumps(index))
    expected = {name: array.shape for name, array in files.read(path).items()}
    with helpers.memory_below(arrays["a"].nbytes / 4):
        found = files.read(path, only_shapes=True)
    assert {name: array.shape for name, array in found.items()} == expected
    assert expected == {name: array.shape for name, array in arrays.items()}

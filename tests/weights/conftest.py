"""Archives like those of torch, made without torch."""

import collections
import io
import pickle
import sys
import types
import zipfile

import ml_dtypes
import numpy as np
import pytest

from tests.support.archives import Tensor

STORAGES = {np.dtype(np.float32): "FloatStorage", np.dtype(np.float16): "HalfStorage",
            np.dtype(np.int64): "LongStorage", np.dtype(np.int8): "CharStorage",
            np.dtype(ml_dtypes.bfloat16): "BFloat16Storage",
            }  # fmt: skip


@pytest.fixture
def torch_save(tmp_path, monkeypatch):
    """torch_save(content) -> path of an archive like torch.save's, made without torch."""

    def named(module, name, kind):
        kind.__module__, kind.__qualname__, kind.__name__ = module, name, name
        monkeypatch.setitem(sys.modules, module, sys.modules.get(module, types.ModuleType(module)))
        setattr(sys.modules[module], name, kind)
        return kind

    def placeholder(*_):
        raise AssertionError("only its name is pickled")

    for module in ("torch", "torch._utils", "__torch__"):
        monkeypatch.setitem(sys.modules, module, types.ModuleType(module))
    rebuild = named("torch._utils", "_rebuild_tensor_v2", placeholder)
    kinds = {dtype: named("torch", name, type(name, (), {})) for dtype, name in STORAGES.items()}
    module_kind = named("__torch__", "Module", type("Module", (), {}))

    def save(content, name="weights.pt"):
        storages = {}

        class Pickler(pickle.Pickler):
            def persistent_id(self, item):
                if not isinstance(item, np.ndarray):
                    return None
                key = str(storages.setdefault(id(item), (len(storages), item))[0])
                return ("storage", kinds[item.dtype], key, "cpu", len(item))

            def reducer_override(self, item):
                if not isinstance(item, Tensor):
                    return NotImplemented
                hooks = collections.OrderedDict()
                return rebuild, (item.storage, item.offset, item.shape, item.strides, False, hooks)

        data = io.BytesIO()
        Pickler(data, 2).dump(content)
        path = tmp_path / name
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("weights/data.pkl", data.getvalue())
            for key, storage in storages.values():
                archive.writestr(f"weights/data/{key}", storage.tobytes())
            archive.writestr("weights/version", "3\n")
        return path

    save.module_kind = module_kind
    return save

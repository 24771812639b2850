"""Files of weights made to hurt: each is refused in one line, and none is given much memory."""

import functools
import json
import pickle
import struct
import zipfile

import ml_dtypes
import numpy as np
import pytest

from tests.support import helpers
from tests.support.archives import Tensor, tensor, zipped
from tests.weights import test_weights
from vlc_jax import weights
from vlc_jax.errors import WeightsError
from vlc_jax.weights import files, torch_archive

MOST_MEMORY = 30e6  # bytes; none of these files has more than 3 MB
BRACKETS = "[" * 1_000_000
DEEP_HEADER = "-" * 9_000 + "1"  # Python's parser answers with a MemoryError


def refused(path, *words):
    """Reading `path` ends in a WeightsError of one line with `words`, and takes little memory;
    so do reading its shapes alone, and its arrays one by one."""
    shapes = functools.partial(weights.read, only_shapes=True)
    for read in (weights.read, shapes, lambda path: dict(files.open_arrays(path))):
        with helpers.memory_below(MOST_MEMORY), pytest.raises(WeightsError) as error:
            read(path)
        message = str(error.value)
        assert all(word in message for word in words), message
        assert "\n" not in message
        assert len(message) < 2_000


def safetensors(header, data=b""):
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(header)) + header + data


def one(dtype, shape, size, name="a"):
    entry = {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}
    return safetensors({name: entry}, bytes(size))


SAFETENSORS = {
    "empty": (b"", "damaged"),
    "a header of 8 EB": (struct.pack("<Q", 2**63) + b"{}", "damaged"),
    "half a header": (one("F32", [1], 4)[:30], "damaged"),
    "a list": (safetensors([1]), "damaged"),
    "deep": (safetensors(b'{"a":' * 200_000), "damaged"),
    "not UTF-8": (safetensors(b'{"\xff": 1}'), "damaged"),
    "a lone surrogate": (safetensors(b'{"\\ud800": 1}'), "damaged"),
    "two arrays in one place": (
        safetensors({k: {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]} for k in "ab"}, b"0"),
        "damaged",
    ),
    "more numbers than fit": (one("F32", [2**62, 4], 4), "damaged"),
    "a quintillion of nothing": (one("F32", [0, 2**62], 0), "damaged"),
    "a hundred axes": (one("F32", [1] * 100, 4), "damaged"),
    "float8": (one("F8_E4M3", [4], 4), "a is of dtype F8_E4M3"),
    "float4": (one("F4", [4], 2), "a is of dtype F4"),
    "complex": (one("C64", [1], 8), "a is of dtype C64"),
    "a name of many letters": (one("F32", [1], 4, "n" * 10_000), "an array with the name 'nnn"),
    "a name of two lines": (one("F32", [1], 4, "a\nb"), "an array with the name 'a\\nb'"),
}


@pytest.mark.parametrize("case", SAFETENSORS)
def test_safetensors(tmp_path, case):
    content, words = SAFETENSORS[case]
    (tmp_path / "model.safetensors").write_bytes(content)
    refused(tmp_path, words)


INDEXES = {
    "itself": {"weight_map": {"a": "model.safetensors.index.json"}},
    "another index": {"weight_map": {"a": "pytorch_model.bin.index.json"}},
    "its folder": {"weight_map": {"a": ""}},
    "the folder above": {"weight_map": {"a": ".."}},
    "a long name": {"weight_map": {"a": "n" * 5_000 + ".bin"}},
    "a name with NUL": {"weight_map": {"a": "a\0.bin"}},
    "numbers": {"weight_map": {"a": 5}},
    "no map": {"weight_map": "model.safetensors"},
    "a list": ["model.safetensors"],
    "missing": {"weight_map": {"a": "gone.safetensors"}},
    "deep": BRACKETS,
    "not UTF-8": b"\xff",
}


@pytest.mark.parametrize("case", INDEXES)
def test_an_index_of(tmp_path, case):
    content = INDEXES[case]
    content = json.dumps(content) if isinstance(content, dict | list) else content
    content = content.encode() if isinstance(content, str) else content
    for name in ("model.safetensors.index.json", "pytorch_model.bin.index.json"):
        (tmp_path / name).write_bytes(content)
    refused(tmp_path)


def npy(header, data=b"", version=(1, 0)):
    header = header if isinstance(header, str) else repr(header)
    length = struct.pack("<H" if version == (1, 0) else "<I", len(header) + 1)
    return b"\x93NUMPY" + bytes(version) + length + header.encode() + b"\n" + data


def described(shape, dtype="<f4", is_fortran=False):
    return {"descr": dtype, "fortran_order": is_fortran, "shape": shape}


def with_field(content, place, value):
    """A zip of one member with another field in its central directory."""
    start = content.rindex(b"PK\x01\x02") + place
    return content[:start] + value + content[start + len(value) :]


ARRAY = npy(described((2,)), bytes(8))
MEMBER = zipped({"a.npy": ARRAY})
NPZ = {
    "an array of one's own": (ARRAY, "not a zip"),
    "empty": (b"", "damaged"),
    "cut": (MEMBER[:-30], "damaged"),
    "a text": (zipped({"a.txt": "hello"}), "damaged"),
    "a folder": (zipped({"a/": ""}), "damaged"),
    "more numbers than bytes": (zipped({"a.npy": npy(described((2**40,)))}), "needs 4398046511104"),
    "axes below zero": (zipped({"a.npy": npy(described((-1, -2)), bytes(8))}), "(-1, -2)"),
    "numbers of no size": (
        zipped({"a.npy": npy(described((10**15,), "|V0"))}),
        "holds more than arrays",
    ),
    "objects": (zipped({"a.npy": npy(described((1,), "|O"), b"c")}), "an array of objects"),
    "complex": (zipped({"a.npy": npy(described((1,), "<c8"), bytes(8))}), "is of dtype complex64"),
    "text": (zipped({"a.npy": npy(described((1,), "<U2"), bytes(8))}), "is of dtype <U2"),
    "void": (zipped({"a.npy": npy(described((4,), "|V2"), bytes(8))}), "is of dtype |V2"),
    "a deep header": (zipped({"a.npy": npy(DEEP_HEADER)}), "header of an array"),
    "a header of 4 GB": (
        zipped({"a.npy": npy(described((2,)), b"", (2, 0))[:8] + b"\xff" * 4}),
        "damaged",
    ),
    "a header of 20,000 letters": (zipped({"a.npy": npy(" " * 20_000)}), "damaged"),
    "version 9": (zipped({"a.npy": npy(described((2,)), b"", (9, 0))}), "version"),
    "a bomb": (zipped({"a.npy": bytes(10**7)}, zipfile.ZIP_DEFLATED), "cannot hold"),
    "4 GB": (with_field(MEMBER, 24, b"\xf0" * 4), "cannot hold"),
    "4 GB of the file": (with_field(MEMBER, 20, b"\xf0" * 4), "cannot hold"),
    "a locked member": (with_field(MEMBER, 8, b"\1\0"), "encrypted"),
    "another method": (zipped({"a.npy": ARRAY}, zipfile.ZIP_LZMA), "another method"),
    "a checksum of something else": (with_field(MEMBER, 16, b"abcd"), "damaged"),
}


@pytest.mark.parametrize("case", NPZ)
def test_npz(tmp_path, case):
    content, words = NPZ[case]
    (tmp_path / "w.npz").write_bytes(content)
    refused(tmp_path / "w.npz", words)


NUMBERS = np.arange(4, dtype=np.float32)


def nested_in_itself():
    content = {}
    content["a"] = content
    return content


def doubled(levels):
    content = {"a": tensor(NUMBERS)}
    for _ in range(levels):
        content = {"a": content, "b": content}
    return content


def many_views():
    storage = np.zeros(100_000, np.float32)
    return {str(i): Tensor(storage, 0, (100_000,), (1,)) for i in range(200)}


TORCH = {  # what is saved, words of the refusal
    "a number repeated to 4 GB": ({"a": Tensor(NUMBERS, 0, (1 << 30,), (0,))}, "too small for its"),
    "a storage shared by 200 tensors": (many_views(), "too small for its tensors"),
    "axes below zero": ({"a": Tensor(NUMBERS, 0, (-1, -1), (0, 0))}, "outside its storage"),
    "a hundred axes": ({"a": Tensor(NUMBERS, 0, (1,) * 100, (1,) * 100)}, "damaged"),
    "a quintillion of nothing": ({"a": Tensor(NUMBERS, 0, (0, 1 << 62), (1, 1))}, "damaged"),
    "other strides": ({"a": Tensor(NUMBERS, 0, (2, 2), (1,))}, "damaged"),
    "a text as shape": ({"a": Tensor(NUMBERS, 0, ("x",), (1,))}, "no whole numbers"),
    "a shape that overflows": (  # (17 - 1) * 16 is 0 in 8 bits
        {"a": Tensor(NUMBERS, 0, (tensor(np.int8(17)),), (tensor(np.int8(16)),))},
        "no whole numbers",
    ),
    "a text as storage": ({"a": Tensor("x", 0, (1,), (1,))}, "a tensor of str"),
    "a view of a view": (
        {"a": Tensor(Tensor(NUMBERS, 0, (64,), (0,)), 0, (64,), (1,))},
        "a tensor of ndarray",
    ),
    "a dict in itself": (nested_in_itself(), "damaged"),
    "dicts in dicts, twice each": (doubled(40), "without end"),
    "a long name": ({"n" * 10_000: tensor(NUMBERS)}, "a name of 10,000 letters"),
    "a list": ([tensor(NUMBERS)], "holds no arrays"),
    "no tensors": ({"a": 5}, "holds no arrays"),
    "names of tuples": ({("a", 1): tensor(NUMBERS)}, "holds no arrays"),
}


@pytest.mark.parametrize("case", TORCH)
def test_torch(torch_save, case):
    content, words = TORCH[case]
    refused(torch_save(content), words)


STORAGE = b"(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0%bX\3\0\0\0cpu%btQ"
PICKLES = {
    "a memo of 100 million": (b"}r" + struct.pack("<I", 100_000_000) + b".", "numbers an object"),
    "bytes of 1 GB": (b"\x8e" + struct.pack("<Q", 1 << 30) + b"abc.", "damaged"),
    "a text of 1 GB": (b"\x8d" + struct.pack("<Q", 1 << 30) + b"abc.", "damaged"),
    "no end": (b"}", "damaged"),
    "another storage": (b"(K\1K\2tQ.", "damaged"),
    "fewer numbers than none": (STORAGE % (b"0", b"J\xff\xff\xff\xff") + b".", "truncated"),
    "numbers that are elsewhere": (STORAGE % (b"9", b"K\1") + b".", "data/9"),
    "a dict of numbers": (
        b"ccollections\nOrderedDict\n" + STORAGE % (b"0", b"K\4") + b"\x85R.",
        "damaged",
    ),
    "a tensor of nothing": (b"ctorch._utils\n_rebuild_tensor_v2\n)R.", "damaged"),
    "a state for numbers": (STORAGE % (b"0", b"K\4") + b"}X\1\0\0\0aK\1sb.", "damaged"),
    "an extension": (b"\x82\x05.", "damaged"),
    "another class": (b"c" + b"m" * 3000 + b"\n" + b"n" * 3000 + b"\n.", "asks to run mmm"),
}


@pytest.mark.parametrize("case", PICKLES)
def test_a_pickle_with(tmp_path, case):
    data, words = PICKLES[case]
    members = {"w/data.pkl": b"\x80\2" + data, "w/data/0": bytes(16)}
    (tmp_path / "w.pt").write_bytes(zipped(members))
    refused(tmp_path / "w.pt", words)


@pytest.mark.parametrize(
    "name", [b"torch\nBFloat16Storage", b"torch.jit._pickle\nrestore_type_tag"]
)
def test_a_pickle_changes_nothing_of_the_process(tmp_path, name):
    dtype = np.dtype(ml_dtypes.bfloat16)
    flags, defaults = dtype.flags, torch_archive._first.__defaults__
    # 96: the dtype's own flags and one that is harmless; others would end this process
    for state in ((3, "<", None, None, None, 2, 2, 96), (None, {"__defaults__": (None,)})):
        data = pickle.dumps(state, 2)[2:-1]  # without the protocol and the end
        members = {"w/data.pkl": b"\x80\2c" + name + b"\n" + data + b"b."}
        (tmp_path / "w.pt").write_bytes(zipped(members))
        refused(tmp_path / "w.pt", "damaged")
    assert (dtype.flags, torch_archive._first.__defaults__) == (flags, defaults)


def test_a_torch_archive_whose_pickle_is_packed_a_thousandfold(tmp_path):
    data = b"\x80\2" + b"}0" * 5_000_000 + b"}."
    (tmp_path / "w.pt").write_bytes(zipped({"w/data.pkl": data}, zipfile.ZIP_DEFLATED))
    refused(tmp_path / "w.pt", "cannot hold")


def test_numbers_that_repeat_are_read_as_torch_reads_them(torch_save):
    content = {"a": Tensor(NUMBERS, 1, (3, 2), (0, 1)), "b": tensor(NUMBERS)}
    np.testing.assert_array_equal(torch_archive.read(torch_save(content))["a"], [[1, 2]] * 3)


def test_no_file(tmp_path):
    (tmp_path / "model.safetensors").symlink_to("/dev/zero")
    refused(tmp_path, "is no file")


CONFIGS = {
    "config.json": {
        "a list": [1],
        "deep": BRACKETS,
        "a number of 5,000 digits": '{"model_type": ' + "9" * 5_000 + "}",
        "not UTF-8": b"\xff",
        "a list as type": {"model_type": [["clip"]]},
        "a long type": {"model_type": "x" * 5_000},
        "no number as epsilon": '{"model_type": "clip", "text_config": {"layer_norm_eps": NaN}}',
    },
    "preprocessor_config.json": {
        "a list": [1],
        "one mean": {"image_mean": [0.5]},
        "no size": {"size": None},
    },
    "open_clip_config.json": {
        "no towers": {"model_cfg": {}},
        "a number as name": {"model_cfg": {"vision_cfg": {"timm_model_name": 1}, "text_cfg": {}}},
    },
    "tokenizer_config.json": {
        "a number as token": {"eos_token": {"content": 5}},
        "a number as side": {"padding_side": 5},
    },
}


@pytest.mark.parametrize(
    ("name", "case"), [(n, case) for n, cases in CONFIGS.items() for case in cases]
)
def test_a_file_beside_the_weights(tmp_path, name, case):
    content = CONFIGS[name][case]
    content = json.dumps(content) if isinstance(content, dict | list) else content
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(WeightsError, match=name) as error:
        weights.metadata.read(tmp_path)
    assert len(str(error.value)) < 500


# Another shape of one array in weights that are whole -> words of the refusal.
POSITIONS = "visual.positional_embedding"
SHAPES = {
    "no axis": ("openai", "visual.transformer.resblocks.0.attn.in_proj_weight", (), "shape ()"),
    "no rows": ("openai", POSITIONS, (0, 24), "shape (0, 24)"),
    "one row": ("openai", POSITIONS, (1, 24), "only square grids"),
    "one axis": ("openai", POSITIONS, (24,), "shape (24,)"),
    "one more axis": ("openai", "positional_embedding", (1, 7, 24), "shape (1, 7, 24)"),
    "a stack of no layers": (
        "big_vision_scan",
        "params/img/Transformer/encoderblock/LayerNorm_0/scale",
        (),
        "no stack of layers",
    ),
    "a stack of a million layers": (
        "big_vision_scan",
        "params/img/Transformer/encoderblock/LayerNorm_0/scale",
        (10**6, 0),
        "no stack of layers",
    ),
}


@pytest.mark.parametrize("case", SHAPES)
def test_an_array_of(tmp_path, case):
    name, key, shape, words = SHAPES[case]
    params = test_weights.parameters(test_weights.FAMILY[name])
    arrays = weights.save(params, name, test_weights.ARCHITECTURE)
    assert key in arrays
    path = test_weights.written(tmp_path, {**arrays, key: np.zeros(shape, np.float32)})
    with pytest.raises(WeightsError) as error:
        weights.load(path, params, test_weights.ARCHITECTURE)
    assert words in str(error.value)


@pytest.mark.parametrize("key", [POSITIONS, "visual.conv1.weight", "token_embedding.weight"])
def test_sizes_are_read_off_arrays_of_the_right_axes_only(key):
    arrays = weights.save(test_weights.parameters("clip"), "openai", test_weights.ARCHITECTURE)
    for shape in ((), (5,), (0, 5, 5, 5)):
        with pytest.raises(WeightsError, match="has shape"):
            weights.sizes.read(weights.shapes_of({**arrays, key: np.zeros(shape)}))


def test_numbers_beyond_float32_are_infinite(tmp_path):
    params = test_weights.parameters("clip")
    arrays = weights.save(params, "openai", test_weights.ARCHITECTURE)
    path = test_weights.written(tmp_path, {**arrays, "logit_scale": np.float64(1e300)})
    with pytest.raises(WeightsError, match="not finite: logit_scale"):
        weights.load(path, params, test_weights.ARCHITECTURE)


@pytest.mark.parametrize(
    "change",
    [
        {"model_state_dict": 5},
        {"model_state_dict": {"fc1.weight": 5}},
        {"model_state_dict": {5: tensor(NUMBERS)}},
        {"external_logic_token_embeddings": 5},
        {"learned_lookup": 5},
    ],
)
def test_a_checkpoint_of_dcsm_with_something_else(torch_save, change):
    head = {"fc1.weight": tensor(NUMBERS.reshape(1, 4)), "fc1.bias": tensor(NUMBERS[:1])}
    content = {"model_state_dict": head, "external_logic_token_embeddings": tensor(NUMBERS)}
    shapes = {"dense_0": np.zeros((4, 1)), "dense_0_bias": np.zeros(1)}
    assert weights.dcsm.load(torch_save(content), shapes).words is None
    with pytest.raises(WeightsError):
        weights.dcsm.load(torch_save(content | change), shapes)

"""GGUF files: numbers of each type, names, rotation, and what is refused."""

import functools
import struct

import jax
import numpy as np
import pytest

from tests.support import damage, gguf_file, small_models
from vlc_jax import weights
from vlc_jax.encode import text_encoders
from vlc_jax.errors import WeightsError
from vlc_jax.models import lm
from vlc_jax.weights import files, gguf, llava

METADATA = {"general.architecture": "llama"}


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0"])
def test_quantised_blocks_are_the_numbers_of_their_formula(tmp_path, kind):
    data, numbers = gguf_file.random_blocks(kind, 6, np.random.default_rng(0))
    first = gguf_file.packed(np.ones(3), "F32")  # the array does not begin where the data begin
    path = gguf_file.write(
        tmp_path / "a.gguf",
        METADATA,
        {"first": ((3,), 0, first), "output.weight": ((3, 64), gguf_file.TYPES[kind], data)},
    )
    expected = np.array(numbers, np.float32).reshape(3, 64)
    read = files.open_arrays(path)["lm_head.weight"]
    assert read.dtype == np.float32
    np.testing.assert_array_equal(read, expected)
    np.testing.assert_array_equal(files.read(path)["lm_head.weight"], expected)
    assert files.read(path, only_shapes=True)["lm_head.weight"].shape == (3, 64)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_plain_numbers_keep_their_type(tmp_path, kind):
    array = np.random.default_rng(0).normal(size=(2, 3))
    content = gguf_file.packed(array, kind)
    arrays = {"output.weight": ((2, 3), gguf_file.TYPES[kind], content)}
    read = gguf.Arrays(gguf_file.write(tmp_path / "a.gguf", METADATA, arrays))["lm_head.weight"]
    assert read.tobytes() == content
    assert read.shape == (2, 3)


@pytest.fixture(params=[True, False], ids=["tied", "with_output"])
def both(request, tmp_path):
    """Sizes, parameters, and the files of one language model: a folder and a GGUF file."""
    sizes = {"family": "llama", "lm": small_models.LM | {"is_tied": request.param, "theta": 2e4}}
    decoder = lm.from_sizes(sizes["lm"])
    params = {"lm": small_models.drawn(functools.partial(lm.init, decoder))}
    llava.save(params, sizes, tmp_path / "folder")
    flat = weights.flatten(params)
    path = gguf_file.language_model(tmp_path / "a.gguf", sizes["lm"], flat, eos_token_id=1)
    return params, tmp_path / "folder", path


def test_a_file_is_read_as_the_folder_of_the_same_model(both):
    """Queries and keys too, whose features llama.cpp stores in another order."""
    params, folder, path = both
    expected, sizes = llava.read_sizes(folder), llava.read_sizes(path)
    epsilon = sizes["lm"].pop("epsilon")  # float32 in the file
    assert epsilon == pytest.approx(expected["lm"].pop("epsilon"))
    assert sizes == expected
    sizes = llava.read_sizes(path)
    loaded = llava.load(path, sizes, params)
    jax.tree.map(np.testing.assert_array_equal, loaded, llava.load(folder, sizes, params))
    assert text_encoders.is_language_model(path)
    assert llava.read_config(path)["eos_token_id"] == [1]


def test_a_missing_layer_is_named(both):
    params, _, path = both
    sizes = llava.read_sizes(path)
    path.write_bytes(path.read_bytes().replace(b"blk.2.ffn_up", b"blk.9.ffn_up"))
    with pytest.raises(WeightsError, match=r"layers\.2\.mlp\.up_proj"):
        llava.load(path, sizes, params)


CHANGED = {
    "another architecture": ({"general.architecture": "phi3"}, "'phi3'; only 'llama'"),
    "scaled frequencies": ({"llama.rope.scaling.type": "yarn"}, "scaled RoPE frequencies"),
    "experts": ({"llama.expert_count": 8}, "experts"),
    "half a head rotated": ({"llama.rope.dimension_count": 2}, "partial_rotary_factor"),
    "heads per layer": ({"llama.attention.head_count": [4, 4, 2]}, "head_count is .*; only a"),
    "a width in words": ({"llama.attention.key_length": "a"}, "key_length is 'a'; only a whole"),
}


@pytest.mark.parametrize("case", CHANGED)
def test_models_of_other_formulas_are_refused(tmp_path, case):
    changed, words = CHANGED[case]
    lm_sizes = small_models.LM
    metadata = METADATA | {
        "llama.block_count": 1,
        "llama.context_length": 256,
        "llama.embedding_length": lm_sizes["width"],
        "llama.feed_forward_length": lm_sizes["mlp_width"],
        "llama.attention.head_count": 4,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
    }
    arrays = {"token_embd.weight": ((60, 16), 0, bytes(60 * 16 * 4))}
    plain = gguf_file.write(tmp_path / "plain.gguf", metadata, arrays)
    assert llava.read_sizes(plain)["lm"]["kv_heads"] == 4  # as many as query heads by default
    path = gguf_file.write(tmp_path / "a.gguf", metadata | changed, arrays)
    with pytest.raises(WeightsError, match=words) as error:
        llava.read_sizes(path)
    assert str(error.value).count(str(path)) == 1


@pytest.mark.parametrize("shape", [(15, 16), (16,)])
def test_rows_that_are_no_heads_are_refused_with_the_file(tmp_path, shape):
    content = (shape, 0, bytes(4 * int(np.prod(shape))))
    metadata = METADATA | {"llama.attention.head_count": 4}
    path = gguf_file.write(tmp_path / "a.gguf", metadata, {"blk.0.attn_q.weight": content})
    with pytest.raises(WeightsError, match=r"a\.gguf: array .*q_proj.* is no 4 even heads"):
        files.read(path)


HOSTILE = {
    "empty": b"",
    "another file": b"PK\3\4" * 10,
    "big-endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "a billion arrays": b"GGUF" + struct.pack("<IQQ", 3, 10**9, 0),
    "a text of 8 EB": b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**63),
    "a list of lists": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + gguf_file.text("a")
    + struct.pack("<IIQ", 9, 9, 1),
    "a hundred axes": b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + gguf_file.text("a")
    + struct.pack("<I", 100),
    "an array that is not there": b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + gguf_file.text("a")
    + struct.pack("<IQIQ", 1, 2**40, 0, 0),
    "a size of 128 bits": b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + gguf_file.text("a")
    + struct.pack("<IQQIQ", 2, 2**63, 2**63, 0, 0),
    "type 14 (Q6_K)": b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + gguf_file.text("a")
    + struct.pack("<IQIQ", 1, 256, 14, 0),
    "half a block": b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + gguf_file.text("a")
    + struct.pack("<IQIQ", 1, 33, 8, 0) + bytes(99),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_refused(tmp_path, case):
    path = tmp_path / "a.gguf"
    path.write_bytes(HOSTILE[case])
    for read in (files.read, files.open_arrays):
        with pytest.raises(WeightsError) as error:
            read(path)
        assert str(error.value).count(str(path)) == 1
        assert "\n" not in str(error.value)
        assert len(str(error.value)) < 500


def test_damaged_files_are_read_or_refused(both):
    params, _, path = both
    rng = np.random.default_rng(0)
    sizes = llava.read_sizes(path)
    damaged = path.with_name("damaged.gguf")
    refused = 0
    for _ in range(60):
        damaged.write_bytes(damage.damaged(path, rng))
        try:
            llava.read_sizes(damaged)
            llava.load(damaged, sizes, params)
        except WeightsError:
            refused += 1
    assert refused > 10

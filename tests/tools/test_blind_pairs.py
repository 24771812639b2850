"""vlc-jax blind_pairs: the pairs equal those of two full matrices, in any blocks."""

import json

import numpy as np
import pytest

from vlc_jax.errors import UsageError
from vlc_jax.tools import blind_pairs

COUNT, BAD = 40, 7


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for name, width in (("clip", 3), ("dino", 4)):
        rows = rng.standard_normal((COUNT, width)).astype(np.float32)
        rows[BAD] = np.nan if name == "dino" else 0
        np.save(tmp_path / f"{name}.npy", rows)
        lines = [json.dumps(f"{i}.png") for i in range(COUNT)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    return tmp_path


def mine(folder, out, *words):
    words = ["--features", "clip.npy", "--other", "dino.npy", "--out", out, *words]
    paths = [folder / word if word.endswith((".npy", ".jsonl")) else word for word in words]
    return blind_pairs.mine(blind_pairs.command_line_parser().parse_args(list(map(str, paths))))


def read(path):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [tuple(row.values()) for row in rows]


def test_pairs_equal_those_of_two_whole_matrices(folder):
    unit = [np.load(folder / f"{x}.npy") for x in ("clip", "dino")]
    with np.errstate(invalid="ignore"):
        unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in unit]
        near, far = (x @ x.T for x in unit)
    first, second = np.nonzero(
        (near > 0.9) & (far < 0.5) & np.triu(np.ones_like(near), 1).astype(bool)
    )
    expected = [
        (f"{i}.png", f"{j}.png", round(float(near[i, j]), 4), round(float(far[i, j]), 4))
        for i, j in zip(first, second, strict=True)
    ]
    assert 20 < len(expected) < 200
    limits = ("--above", "0.9", "--below", "0.5")
    assert f"{len(expected)} pairs of 40 images" in mine(folder, "all.jsonl", *limits)
    found = read(folder / "all.jsonl")
    assert [row[:2] for row in found] == [row[:2] for row in expected]
    np.testing.assert_allclose([x[2:] for x in found], [x[2:] for x in expected], atol=1.1e-4)
    mine(folder, "blocks.jsonl", *limits, "--block", "6")
    assert read(folder / "blocks.jsonl") == found
    with pytest.raises(UsageError, match=r"all\.jsonl exists"):
        mine(folder, "all.jsonl")


def test_features_of_other_images_are_refused(folder):
    names = [json.dumps(f"{i}.jpg") for i in range(COUNT)]
    (folder / "dino.jsonl").write_text("\n".join(names))
    with pytest.raises(UsageError, match=r"other images \(40 and 40\), or in another order"):
        mine(folder, "all.jsonl")

"""EqBen: subsets and their families, frames of OpenCV's channel order, the rows of all of it."""

import numpy as np
import pytest

from tests.support.sets import eqben as files
from tests.support.sets.random_scorer import random_scorer
from vlc_jax import evaluators
from vlc_jax.input_pipeline.benchmarks.eqben import eqben, eqben_full
from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.record import DataError


def test_captions_stand_beside_images_with_the_group_score(root):
    benchmark = eqben(root)
    case = benchmark.cases[0]
    assert case.captions == ("1 cups on a table", "2 cups on a table")
    assert [path.name for path in case.images] == ["frame_0.png", "frame_1.png"]
    metrics = evaluators.evaluate("pairs", benchmark, random_scorer()).metrics
    assert benchmark.summary[0] == "group_score"
    assert metrics["group_score"].chance == pytest.approx(1 / 6)


def test_the_subset_is_the_first_folder_and_kubric_one_family(root):
    metrics = evaluators.evaluate("pairs", eqben(root), random_scorer()).metrics
    prefix = "group_score/family="
    families = {n.removeprefix(prefix): e.count for n, e in metrics.items() if n.startswith(prefix)}
    assert families == {"eqbenag": 1, "eqbeng": 1, "eqbeny": 1, "eqbenk": 3, "eqbensd": 1}
    assert metrics["group_score/subset=eqbenkubric_cnt"].count == 1


def test_frames_in_numpy_files_become_rgb(root):
    (case,) = [case for case in eqben(root).cases if case.group["subset"] == "eqbenyoucook2"]
    for k, each in enumerate(case.images):
        np.testing.assert_array_equal(image_ops.decode(each), files.RGB + k)


def test_damaged_and_missing_numpy_files_are_told_apart(root):
    path = root / "eqben_vllm" / "images" / "eqbenyoucook2" / "video_1" / "frame_1.npy"
    for content, message in ((path.read_bytes()[:90], "is no NumPy file"), (b"", "is no NumPy")):
        path.write_bytes(content)
        with pytest.raises(DataError, match=f"frame_1.npy {message}"):
            decode_all(root)
    for wrong in (np.zeros((4, 5, 3)), np.zeros((4, 5), np.uint8)):
        np.save(path, wrong)
        with pytest.raises(DataError, match=r"frame_1.npy has no uint8 pixels"):
            decode_all(root)
    path.unlink()
    with pytest.raises(DataError, match=r"frame_1.npy does not exist"):
        decode_all(root)


def decode_all(root):
    """Frames are read when they are decoded: those of the full set are 80 GB."""
    return [image_ops.decode(each) for case in eqben(root).cases for each in case.images]


def test_rows_of_the_full_set_become_pairs_of_the_small_one(root):
    small, full = eqben(root), eqben_full(root)
    assert [case.captions for case in full.cases] == [case.captions for case in small.cases]
    assert [case.group for case in full.cases] == [case.group for case in small.cases]
    for case, other in zip(full.cases, small.cases, strict=True):
        assert [path.name for path in case.images] == [path.name for path in other.images]
    light = eqben_full(root, light=True)
    assert {path.suffix for case in light.cases for path in case.images} == {".jpg", ".npy"}
    assert any("eqbenag: 1 cases; published are 195,872" in note for note in full.notes)

"""Nulls of images: what they give away without a caption."""

import json

import numpy as np
import pytest

from tests.support import sets
from vlc_jax.input_pipeline.benchmarks import PUBLISHED, image_nulls
from vlc_jax.input_pipeline.case import Benchmark, Case, image_file
from vlc_jax.input_pipeline.commands.benchmarks import main
from vlc_jax.input_pipeline.record import DataError


def pairs(count, wrong="a cup {} edited"):
    cases = (Case(str(n), ("a", "b"), (f"a cup {n}", wrong.format(n))) for n in range(count))
    return Benchmark("mine", tuple(cases), "1")


def drawn(shift, seed=0, moved="_1.png"):
    """Random features, those of the second image moved by `shift` in one direction."""
    draw = np.random.default_rng(seed)

    def features(names):
        found = draw.normal(size=(len(names), 16))
        found[:, 3] += [shift * name.endswith(moved) for name in names]
        return found

    return features


def test_images_that_are_exchangeable_are_near_chance():
    null = image_nulls.image_null(pairs(600), drawn(0.0))
    assert (null.cases, null.chance) == (600, 0.5)
    assert 0.43 < null.image < 0.57
    assert 0.43 < null.matched < 0.57


def test_edited_images_and_captions_are_matched_without_binding():
    null = image_nulls.image_null(pairs(200), drawn(8.0))
    assert null.image > 0.98
    assert null.matched > 0.98


def test_edited_images_alone_match_nothing():
    """Captions of one kind: half of the pairs agree."""
    null = image_nulls.image_null(pairs(100, wrong="a cup {}"), drawn(8.0))
    assert null.image > 0.98
    assert null.matched == 0.5


def test_several_images_of_one_caption_have_blind_accuracy():
    cases = tuple(Case(str(n), ("x",) * 10, ("a cup",)) for n in range(60))
    null = image_nulls.image_null(Benchmark("mine", cases, "1"), drawn(9.0, moved="_0.png"))
    assert null.chance == pytest.approx(0.1)
    assert null.image > 0.95
    assert null.matched is None


def test_a_set_of_single_images_is_refused():
    cases = (Case("0", ("x",), ("a cup", "a dog")),)
    with pytest.raises(DataError, match="one image per case: there is nothing to choose from"):
        image_nulls.image_null(Benchmark("mine", cases, "1"), drawn(1.0))


def test_the_command_reads_features_by_an_evaluations_names(all_sets, tmp_path, capsys):
    cases = PUBLISHED["bivlc"][0](**sets.options("bivlc", all_sets)).cases
    names = [image_file(case.id, index) for case in cases for index in (0, 1)]
    np.save(tmp_path / "x.npy", drawn(3.0)(names).astype(np.float32))
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(name) + "\n" for name in names))
    (tmp_path / "bivlc").symlink_to(all_sets / "bivlc")
    arguments = ["--root", str(tmp_path), "--nulls", "--sets", "bivlc"]
    assert main([*arguments, "--features", str(tmp_path / "x.npy")]) == 0
    assert "bivlc: images alone: the first is told apart in " in capsys.readouterr().out
    (tmp_path / "sugar_crepe").symlink_to(all_sets / "sugar_crepe")
    assert main([*arguments, "sugarcrepe", "--features", str(tmp_path / "x.npy")]) == 0
    printed = capsys.readouterr().out
    assert "bivlc: images alone: the first is told apart in " in printed
    assert "sugarcrepe has one image per case: there is nothing to choose from" in printed
    np.save(tmp_path / "x.npy", np.zeros((1, 4), np.float32))
    (tmp_path / "x.jsonl").write_text('"other.png"\n')
    assert main([*arguments, "--features", str(tmp_path / "x.npy")]) == 3
    lacking = "some images of bivlc have no features, such as 000000_replace_att_0.png: names are"
    assert lacking in capsys.readouterr().err

"""Winoground: three forms of the same cases, and groups of tags."""

import numpy as np

from tests.support.sets import winoground as files
from tests.support.sets.random_scorer import random_scorer
from vlc_jax import evaluators
from vlc_jax.input_pipeline.benchmarks.winoground import winoground
from vlc_jax.input_pipeline.images import image_ops


def test_all_forms_are_the_same_cases(root):
    official = winoground(root).cases
    for name, write in (("t2v", files.write_t2v), ("packed", files.write_packed)):
        write(root / name)
        other = winoground(root, folder=name, images=name).cases
        for case, same in zip(official, other, strict=True):
            assert (case.id, case.captions) == (same.id, same.captions)
            assert case.group.items() <= same.group.items()
            for picture, its in zip(case.images, same.images, strict=True):
                np.testing.assert_array_equal(image_ops.decode(picture), image_ops.decode(its))


def test_a_case_is_in_a_group_for_each_kind_of_tag_that_it_has(root):
    files.write_t2v(root / "t2v")
    benchmark = winoground(root, folder="t2v", images="t2v")
    metrics = evaluators.evaluate("pairs", benchmark, random_scorer()).metrics
    counts = {
        name.removeprefix("pair_accuracy/"): estimate.count
        for name, estimate in metrics.items()
        if name.startswith("pair_accuracy/")
    }
    assert counts == dict.fromkeys(
        [
            *("tag=Noun", "tag=Scope", "secondary_tag=Series", "collapsed_tag=Object"),
            *("collapsed_tag=Relation", "main_predicates=1", "main_predicates=2"),
            *("UnusualImage=yes", "UnusualText=yes", "NoTag=yes"),
        ],
        1,
    )


def test_images_may_be_beside_the_annotations(root):
    (root / "winoground" / "images").rename(root / "winoground" / "data" / "images")
    assert all(path.is_file() for case in winoground(root).cases for path in case.images)

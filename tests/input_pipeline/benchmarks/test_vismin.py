"""VisMin: captions beside their images, over several files, tables that do not belong together."""

import csv

import numpy as np
import pytest

from tests.support.sets import vismin as miniature
from tests.support.sets.files import picture_bytes
from vlc_jax.input_pipeline.benchmarks import vismin
from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.record import DataError


def test_captions_that_the_solution_exchanges_stand_beside_their_images(root):
    cases = vismin.vismin(root).cases
    assert len(cases) == 8
    for number, case in enumerate(cases):
        category, n = miniature.CATEGORIES[number // 2], number % 2
        assert case.captions == (f"{category} {n}: a cup", f"{category} {n}: a pan")
        assert case.group == {"category": category}
        for k, each in enumerate(case.images):
            expected = image_ops.decode(picture_bytes(f"{category}{n}{k}"))
            np.testing.assert_array_equal(image_ops.decode(each), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[:-1], r"sim_solution\.csv has 7 rows and \*\.parquet 8"),
        (lambda rows: rows[::-1], r"sim_solution\.csv: row 0 .* category 'counting'"),
        (lambda rows: [rows[0] | {"Text": "="}, *rows[1:]], r"sim_solution\.csv: row 0 is '='"),
    ],
)
def test_a_solution_of_other_rows_is_refused(root, change, message):
    with (root / "vismin" / vismin.SOLUTION).open(newline="") as file:
        rows = list(csv.DictReader(file))
    miniature.write_table(root / "vismin" / vismin.SOLUTION, change(rows))
    with pytest.raises(DataError, match=message):
        vismin.vismin(root)

"""A table with hard texts, or with two images per row, is a benchmark."""

import numpy as np
import pytest
from PIL import Image

from tests.support import helpers
from vlc_jax.input_pipeline.benchmarks import READERS
from vlc_jax.input_pipeline.record import DataError

ROWS = [
    {
        "name": f"{i}.png",
        "says": f"a dog and {i} cats",
        "wrong": [f"a cat and {i} dogs", f"{i} dogs"],
        "also": [f"{i} cats and a dog", f"a dog with {i} cats"],
        "kind": "count" if i else "order",
        "other": f"{(i + 1) % 4}.png",
        "other says": f"{i} cats left of a dog",
        "id": str(i),
        "hard": [str(i ^ 1)],
    }
    for i in range(4)
]
COLUMNS = {
    "image_column": "name",
    "caption_column": "says",
    "negatives_column": "wrong",
    "positives_column": "also",
    "group_column": "kind",
}
SECOND = {"image_column": "other", "caption_column": "other says"}


def write(folder, rows):
    for i in range(4):
        Image.fromarray(np.full((9, 9, 3), 50 * i, np.uint8)).save(folder / f"{i}.png")
    path = helpers.write_rows(folder / "table.jsonl", rows)
    return {"path": str(path), **COLUMNS}


def test_every_caption_is_asked_against_its_negatives(tmp_path):
    rows = [*ROWS[:3], {**ROWS[3], "says": ["x", "y"], "wrong": [["u"], ["v", "w"]], "also": []}]
    benchmark = READERS["choice"]("all", **write(tmp_path, rows))
    assert [case.captions for case in benchmark.cases] == [
        *((row["says"], *row["wrong"]) for row in rows[:3]),
        *(("x", "u"), ("y", "v", "w")),
    ]
    assert [case.group for case in benchmark.cases] == ["order", *["count"] * 4]
    assert len({case.id for case in benchmark.cases}) == 5
    assert benchmark.version.endswith("/5")


def test_triplets_are_of_the_first_of_both_and_so_on(tmp_path):
    benchmark = READERS["triplet"]("all", count=2, **write(tmp_path, ROWS))
    asked = [(*case.captions, case.meta["positive"]) for case in benchmark.cases]
    assert asked == [
        (row["says"], negative, positive)
        for row in ROWS[:2]
        for negative, positive in zip(row["wrong"], row["also"], strict=True)
    ]


def test_rows_of_one_image_stay_cases_of_their_own_groups(tmp_path):
    rows = [ROWS[0], ROWS[1] | {"name": "0.png"}, ROWS[2]]
    options = write(tmp_path, rows)
    for reader, count in (("choice", 3), ("triplet", 6)):
        cases = READERS[reader]("all", **options).cases
        assert len(cases) == count
        assert [case.group for case in cases] == [
            r["kind"] for r in rows for _ in range(count // 3)
        ]
    assert len(READERS["pairs"]("all", second=SECOND, **options).cases) == 3


def test_a_pair_is_two_images_or_an_image_and_its_hard_image(tmp_path):
    options = write(tmp_path, ROWS)
    benchmark = READERS["pairs"]("all", second=SECOND, **options)
    for row, case in zip(ROWS, benchmark.cases, strict=True):
        assert case.captions == (row["says"], row["other says"])
        assert [path.name for path in case.images] == [row["name"], row["other"]]
    by_id = READERS["pairs"]("all", id_column="id", hard_images_column="hard", **options)
    for i, case in enumerate(by_id.cases):
        assert case.captions == (ROWS[i]["says"], ROWS[i ^ 1]["says"])
    assert benchmark.version != by_id.version


@pytest.mark.parametrize(
    ("reader", "change", "words"),
    [
        ("choice", {"wrong": []}, r"record 2\.png#3: .* has no negatives; name their column"),
        ("triplet", {"also": []}, "has no positives; name their column, positives_column"),
        ("triplet", {"also": ["x"]}, "one negative and one positive; .* has 2 and 1"),
        ("choice", {"says": " "}, r"benchmark record 2\.png#3: no caption with any text"),
        ("pairs", {}, "no second image; name the columns of the second image"),
    ],
)
def test_nothing_is_left_out_in_silence(tmp_path, reader, change, words):
    options = write(tmp_path, [*ROWS[:2], {**ROWS[2], **change}, ROWS[3]])
    with pytest.raises(DataError, match=words):
        READERS[reader]("all", **options)


def test_pairs_that_say_the_same_of_both_images_are_refused(tmp_path):
    options = write(tmp_path, [ROWS[0], {**ROWS[1], "other says": ROWS[1]["says"]}])
    with pytest.raises(DataError, match="both captions are 'a dog and 1 cats'"):
        READERS["pairs"]("all", second=SECOND, **options)


def test_a_wrong_column_names_those_there_are(tmp_path):
    options = write(tmp_path, ROWS) | {"negatives_column": "wrongs"}
    with pytest.raises(ValueError, match=r"no column 'wrongs' .*'wrong'.*did you mean"):
        READERS["choice"]("all", **options)

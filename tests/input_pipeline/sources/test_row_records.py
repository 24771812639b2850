"""The columns of a table: captions, hard texts, and the files of images."""

import json

import pytest

from tests.support import helpers, table_files
from tests.support.helpers import write_rows
from tests.support.table_files import KINDS, table, write, write_delimited
from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources.records import RecordsSource


@pytest.fixture
def folder(tmp_path):
    return table_files.write_images(tmp_path)


def test_images_are_looked_for_in_the_image_folder(folder, tmp_path_factory):
    path = write_rows(tmp_path_factory.mktemp("tables") / "captions.jsonl", table())
    assert RecordsSource(path=path, image_folder=folder)[4].image == folder / "p04.jpg"


def test_lists_and_several_caption_columns_are_joined(folder):
    path = write_rows(
        folder / "a.jsonl", table(more=lambda i: [f"more {i}", "again"], title=lambda i: f"t{i}")
    )
    source = RecordsSource(path=path, caption_column=("title", "more"))
    assert list(source[2].captions) == ["t2", "more 2", "again"]


def test_negatives_positives_hard_images_and_group_are_carried(folder):
    extra = {
        "id": lambda i: f"id{i}",
        "negatives": lambda i: [[f"not {i}", " "]],
        "positives": lambda i: [f"same {i}", f"equal {i}"],
        "near": lambda i: [f"id{(i + 1) % 12}"],
        "kind": lambda i: {"parity": i % 2},
    }
    path = write_rows(folder / "a.jsonl", table(**extra))
    options = {
        "id_column": "id",
        "negatives_column": "negatives",
        "positives_column": "positives",
        "hard_images_column": "near",
        "group_column": "kind",
    }
    record = RecordsSource(path=path, **options)[4]
    assert record.id == "id4"
    assert record.negatives == [["not 4"]]
    assert record.positives == [["same 4", "equal 4"]]
    assert (record.hard_images, record.group) == (["id5"], {"parity": 0})


def test_negatives_that_do_not_match_the_captions_name_the_row(folder):
    path = write_rows(folder / "a.jsonl", table(negatives=lambda i: [["a"]] * (1 + (i == 2))))
    source = RecordsSource(path=path, negatives_column="negatives")
    with pytest.raises(DataError, match=r"row 3 of .* one list for each of 1 captions"):
        source[2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_column_names_the_columns_seen_and_the_nearest(folder, kind):
    path = write(folder, kind)
    with pytest.raises(ValueError, match=r"no column 'captions' .*\['image', 'caption'\].*caption"):
        RecordsSource(path=path, caption_column="captions")
    with pytest.raises(ValueError, match=r"no column 'img' \(image_column\).*did you mean"):
        RecordsSource(path=path, image_column="img")


def test_missing_files_and_folders_are_named(folder):
    path = write(folder, "jsonl")
    with pytest.raises(ValueError, match=r"no image folder .*pictures; set image_folder"):
        RecordsSource(path=path, image_folder=folder / "pictures")
    with pytest.raises(ValueError, match=r"no file .*nothing\.jsonl"):
        RecordsSource(path=folder / "nothing.jsonl")
    with pytest.raises(ValueError, match="ends with one of"):
        RecordsSource(path=folder / "p00.jpg")


def test_a_wrong_image_folder_names_the_first_missing_image(folder):
    (folder / "other").mkdir()
    with pytest.raises(DataError, match=r"none of 12 image files looked at .*p00\.jpg; set"):
        RecordsSource(path=write(folder, "jsonl"), image_folder=folder / "other")


def test_single_missing_images_are_left_to_the_loader(folder):
    (folder / "p00.jpg").unlink()
    source = RecordsSource(path=write(folder, "jsonl"))
    with pytest.raises(DataError, match=r"p00\.jpg does not exist"):
        image_ops.decode(source[0].image)


LISTS = {
    '["a dog", "a cat \\ud83d\\ude00"]': ["a dog", "a cat 😀"],  # JSON, as most libraries escape it
    "['a dog', \"a cat's tail\"]": ["a dog", "a cat's tail"],
    "['a dog' 'it says \"hi\"'\n \"a cat's\"]": ["a dog", 'it says "hi"', "a cat's"],  # an array
    "<ArrowStringArray>\n['a dog', 'b cat']\nLength: 2, dtype: str": ["a dog", "b cat"],
    "[np.str_('a dog'), np.str_(\"b's\")]": ["a dog", "b's"],
    "array(['a (dog)', 'b <NA>'], dtype=object)": ["a (dog)", "b <NA>"],
    "(np.str_('a dog'), np.str_('b'))": ["a dog", "b"],
    "('a dog',)": ["a dog"],
    "{'a dog', 'b'}": ["a dog", "b"],
    "('Hello') is written there": ["('Hello') is written there"],
    "STOP('a')": ["STOP('a')"],
    '["one"]': ["one"],
    "[]": [],
    "[a man] in a [hat]": ["[a man] in a [hat]"],
    '["Hello"] is written there': ['["Hello"] is written there'],
    "[UNK]": ["[UNK]"],
}


@pytest.mark.parametrize("cell", LISTS)
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_cell_that_is_a_list_holds_the_captions_of_the_image(folder, cell, kind):
    writer = write_rows if kind == "jsonl" else write_delimited
    path = writer(folder / f"a.{kind}", [{"image": "p00.jpg", "caption": cell}])
    assert RecordsSource(path=path)[0].captions == LISTS[cell]


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("['a dog', 'a c", "'caption' is not a list: unterminated string literal"),
        ("['a dog", "'caption' is not a list"),
        ("['a dog' 'b' ... 'c']", "cut short"),
        ("<ArrowStringArray>\n['a', 'b', ...\n 'z']\nLength: 300, dtype: str", "cut short"),
        ("0    a dog\n1    b\ndtype: object", "'caption' is not a list: invalid syntax"),
        ("['a dog', nan]", "a caption is text; got .'a dog', None"),
        ("['a dog' nan]", "a caption is text"),
        ("<StringArray>\n['a', <NA>]\nLength: 2, dtype: string", "a caption is text"),
        ("[None]", "a caption is text"),
        ("b'a dog'", "it holds b'a dog'"),
    ],
)
def test_a_list_of_captions_that_is_not_whole_is_damage(folder, cell, reason):
    path = write_delimited(folder / "a.csv", [{"image": "p00.jpg", "caption": cell, "not": cell}])
    for columns in ({}, {"caption_column": "image", "negatives_column": "not"}):
        with pytest.raises(DataError, match="row 1 of") as error:
            print(RecordsSource(path=path, **columns)[0])
        if not columns:
            error.match(reason)


def test_white_space_at_the_ends_of_texts_is_no_part_of_them(folder):
    row = {"image": "p00.jpg", "caption": ["a red square\r\n", "\u200b\u3000b\n c\ufeff"]}
    path = write_rows(folder / "a.jsonl", [row | {"no": [[" x "], []], "yes": ["y\n"]}])
    record = RecordsSource(path=path, negatives_column="no", positives_column="yes")[0]
    assert record.captions == ["a red square", "b\n c"]
    assert (record.negatives, record.positives) == ([["x"], []], [["y"]] * 2)


def one_record(tmp_path, row, **options):
    helpers.write_photos(tmp_path, 1)
    write_rows(tmp_path / "t.jsonl", [{"image": "photo_0.jpg"} | row])
    return RecordsSource("train", path=tmp_path / "t.jsonl", **options)[0]


@pytest.mark.parametrize(
    ("negatives", "kinds", "expected"),
    [
        (["x", " ", "y"], ["a", "b", "c"], ([["x", "y"]] * 2, [["a", "c"]] * 2)),
        (["x", "y"], "a", ([["x", "y"]] * 2, [["a", "a"]] * 2)),
        ([["x", ""], []], [["a", "b"], []], ([["x"], []], [["a"], []])),
        (["x"], None, ([["x"]] * 2, [])),
    ],
)
def test_kinds_of_a_table_follow_their_texts(tmp_path, negatives, kinds, expected):
    row = {"caption": ["one", "two"], "not": negatives, "kind": kinds}
    record = one_record(tmp_path, row, negatives_column="not", negative_kinds_column="kind")
    assert (record.negatives, record.negative_kinds) == expected


@pytest.mark.parametrize("kinds", [["a"], [["a"], ["b"]], 3])
def test_kinds_of_another_shape_are_damage(tmp_path, kinds):
    row = {"caption": "one", "yes": ["x", "y"], "kind": kinds}
    with pytest.raises(DataError, match=r"row 1 of .*t\.jsonl: 'kind'"):
        one_record(tmp_path, row, positives_column="yes", positive_kinds_column="kind")


def test_a_table_with_the_usual_other_names_gets_the_right_hint(tmp_path):
    path = tmp_path / "table.jsonl"
    path.write_text(json.dumps({"title": "a cat", "filepath": "a.jpg", "url": "x"}) + "\n")
    with pytest.raises(ValueError, match="did you mean image_column='filepath'"):
        RecordsSource("all", path=path)
    with pytest.raises(ValueError, match="did you mean caption_column='title'"):
        RecordsSource("all", path=path, image_column="filepath")

"""Tables of every format on disk with real image files beside them."""

import csv
import json
import pickle

import numpy as np
import pytest
from PIL import Image

from tests.support import helpers
from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import holdout, tables
from vlc_jax.input_pipeline.sources.records import RecordsSource

CAPTIONS = [f"photo number {i}, with a comma and a “quote”" for i in range(12)]


@pytest.fixture
def folder(tmp_path):
    """p00.jpg ... p11.jpg, each of its own grey level; tables are written beside them."""
    for i in range(12):
        pixels = np.full((20, 30, 3), 20 * i, np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"p{i:02d}.jpg", quality=95)
    return tmp_path


def table(**extra):
    """Twelve rows; `extra` adds columns, each a list or a function of the row number."""
    made = []
    for i in range(12):
        row = {"image": f"p{i:02d}.jpg", "caption": CAPTIONS[i]}
        for name, values in extra.items():
            row[name] = values(i) if callable(values) else values[i]
        made.append(row)
    return made


def write_jsonl(path, table_rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in table_rows), "utf-8")
    return path


def write_delimited(path, table_rows):
    delimiter = "\t" if path.suffix == ".tsv" else ","
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(table_rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(table_rows)
    return path


def write_coco(path):
    numbers = [*range(12)]
    document = {
        "images": [{"id": 100 + i, "file_name": f"p{i:02d}.jpg", "width": 30} for i in numbers],
        "annotations": [
            {"id": j, "image_id": 100 + i, "caption": f"{CAPTIONS[i]} {j}"}
            for j in range(2)
            for i in reversed(numbers)
        ],
    }
    path.write_text(json.dumps(document), "utf-8")
    return path


def write(folder, kind):
    path = folder / f"captions.{kind}"
    if kind == "jsonl":
        return write_jsonl(path, table())
    if kind == "json":
        path.write_text(json.dumps(table()), "utf-8")
        return path
    return write_delimited(path, table())


KINDS = ["jsonl", "csv", "tsv", "json"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_table_format_gives_the_same_records(folder, kind):
    source = RecordsSource(path=write(folder, kind))
    assert len(source) == 12
    for i in (0, 5, 11, 3):
        record = source[i]
        assert list(record.captions) == [CAPTIONS[i]]
        assert record.image == folder / f"p{i:02d}.jpg"
        assert abs(int(image_ops.decode(record.image).mean()) - 20 * i) <= 1
    assert len({source[i].id for i in range(12)}) == 12


def test_coco_captions_gather_all_captions_of_an_image(folder):
    source = RecordsSource(path=write_coco(folder / "coco.json"))
    assert len(source) == 12
    assert source[3].id == "103"
    assert list(source[3].captions) == [f"{CAPTIONS[3]} 0", f"{CAPTIONS[3]} 1"]
    assert source[3].image.name == "p03.jpg"


def test_coco_images_without_captions_are_left_out_and_captions_without_image_refused(
    folder, caplog
):
    document = json.loads(write_coco(folder / "coco.json").read_text())
    document["annotations"] = [a for a in document["annotations"] if a["image_id"] != 105]
    (folder / "coco.json").write_text(json.dumps(document))
    assert len(RecordsSource(path=folder / "coco.json")) == 11
    assert "1 of 12 images have no caption" in caplog.text
    document["images"] = document["images"][1:]
    (folder / "coco.json").write_text(json.dumps(document))
    with pytest.raises(DataError, match=r"1 captioned image ids .* the first is 100"):
        RecordsSource(path=folder / "coco.json")


def test_images_are_looked_for_in_the_image_folder(folder, tmp_path_factory):
    path = write_jsonl(tmp_path_factory.mktemp("tables") / "captions.jsonl", table())
    assert RecordsSource(path=path, image_folder=folder)[4].image == folder / "p04.jpg"


def test_lists_of_captions_and_several_caption_columns_are_joined(folder):
    path = write_jsonl(
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
    path = write_jsonl(folder / "a.jsonl", table(**extra))
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
    path = write_jsonl(folder / "a.jsonl", table(negatives=lambda i: [["a"]] * (1 + (i == 2))))
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


def test_a_wrong_image_folder_names_the_first_missing_image_and_how_many(folder):
    (folder / "other").mkdir()
    with pytest.raises(DataError, match=r"none of 12 image files looked at .*p00\.jpg; set"):
        RecordsSource(path=write(folder, "jsonl"), image_folder=folder / "other")


def test_single_missing_images_are_left_to_the_loader(folder):
    (folder / "p00.jpg").unlink()
    source = RecordsSource(path=write(folder, "jsonl"))
    with pytest.raises(DataError, match=r"p00\.jpg does not exist"):
        image_ops.decode(source[0].image)


def test_a_damaged_row_is_an_error_of_that_row_only(folder):
    path = write(folder, "jsonl")
    lines = path.read_bytes().splitlines()
    lines[2] = b'{"image": "p02.jpg", "caption": "cut'
    lines[3] = b'{"image": "p03.jpg"}'
    lines[4] = b'{"image": "p04.jpg", "caption": 7}'
    lines[5] = b"[1, 2]"
    lines[6] = b'{"image": "", "caption": "a"}'
    lines[7] = b'{"image": "https://a.b/c.jpg", "caption": "a"}'
    lines[8] = b'{"image": "p08.jpg", "caption": "\xff"}'
    lines[9] = b'{"image": "p09.jpg", "caption": null}'
    path.write_bytes(b"\n".join(lines))
    source = RecordsSource(path=path)
    assert len(source) == 12
    reasons = ["cannot be read", "has no 'caption'", "is text", "JSON object", "name of a file"]
    reasons += ["URL", "UTF-8", "its 'caption' is null, or an empty cell"]
    for index, reason in enumerate(reasons, start=2):
        with pytest.raises(DataError, match=f"row {index + 1} of .*{reason}"):
            source[index]
    assert source[1].captions == [CAPTIONS[1]]
    assert source[10].captions == [CAPTIONS[10]]


def test_a_row_with_a_stray_separator_or_quote_is_an_error_of_that_row_only(folder):
    path = folder / "a.csv"
    lines = ["image,caption", *(f"p{i:02d}.jpg,caption {i}" for i in range(12))]
    lines[3] += ",surplus"
    lines[5] = 'p04.jpg,"caption" 4'
    path.write_text("\r\n".join(lines))
    source = RecordsSource(path=path)
    assert len(source) == 12
    with pytest.raises(DataError, match=r"row 3 .* 3 fields where the header has 2"):
        source[2]
    with pytest.raises(DataError, match="row 5 "):
        source[4]
    assert [source[i].captions[0] for i in (0, 3, 11)] == ["caption 0", "caption 3", "caption 11"]


def test_quoted_fields_may_hold_separators_and_line_breaks(folder):
    texts = lambda i: f'line one,\nline "two" of {i}\n\r\nline four'  # noqa: E731
    path = write_delimited(folder / "a.csv", table(text=texts))
    source = RecordsSource(path=path, caption_column="text")
    assert len(source) == 12
    for i in range(12):
        assert source[i].captions == [texts(i)]


def test_unquoted_tables_keep_their_quotation_marks(folder):
    path = folder / "a.tsv"
    rows_text = [f'p{i:02d}.jpg\t"big" photo {i}' for i in range(12)]
    path.write_text("\n".join(["image\tcaption", *rows_text]) + "\n")
    source = RecordsSource(path=path, quoting=False)
    assert source[3].captions == ['"big" photo 3']


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_byte_order_marks_blank_lines_and_a_missing_last_line_end_do_not_matter(folder, kind):
    path = write(folder, kind)
    lines = path.read_bytes().splitlines()
    padded = b"\xef\xbb\xbf" + b"\r\n\r\n".join(lines[:4]) + b"\n" + b"\n".join(lines[4:])
    path.write_bytes(padded)
    source = RecordsSource(path=path)
    assert [source[i].captions[0] for i in range(len(source))] == CAPTIONS


def test_a_split_column_selects_rows_and_an_unknown_split_lists_the_known(folder):
    path = write_jsonl(folder / "a.jsonl", table(part=lambda i: "val" if i % 4 == 0 else "train"))
    options = {"path": path, "split_column": "part"}
    train, val = RecordsSource("train", **options), RecordsSource("val", **options)
    assert [len(train), len(val), len(RecordsSource("all", **options))] == [9, 3, 12]
    assert [val[i].image.name for i in range(3)] == ["p00.jpg", "p04.jpg", "p08.jpg"]
    with pytest.raises(ValueError, match=r"no row of split 'test'; splits: val \(3\), train \(9\)"):
        RecordsSource("test", **options)


def test_an_image_in_two_splits_is_counted_in_a_warning(folder, caplog):
    part = lambda i: "val" if i % 4 == 0 else "train"  # noqa: E731
    rows = [*table(part=part), *table(part=part)]
    options = {"path": folder / "a.jsonl", "split_column": "part"}
    write_jsonl(options["path"], rows)
    source = RecordsSource("val", **options)
    assert source.images_per_split() == {"train": 9, "val": 3}
    assert not caplog.text
    rows[12]["part"] = "train"
    write_jsonl(options["path"], rows)
    for source in (RecordsSource("val", **options), RecordsSource("all", **options)):
        source.images_per_split()
        assert "1 images are in more than one split; were rows divided" in caplog.text
        caplog.clear()


def test_holdout_divides_images_and_not_rows(folder):
    double = [row | {"caption": text} for row in table() for text in ("one", "other")]
    options = {"path": write_jsonl(folder / "a.jsonl", double)}
    train = RecordsSource("train", holdout=0.4, **options)
    held = RecordsSource("validation", holdout=0.4, **options)
    names = [{source[i].image.name for i in range(len(source))} for source in (train, held)]
    assert (train.rows + held.rows, len(train) + len(held)) == (24, 12)
    assert names[0]
    assert names[1]
    assert not names[0] & names[1]
    options["path"] = write_jsonl(folder / "b.jsonl", table()[::-1])
    again = RecordsSource("validation", holdout=0.4, **options)
    assert {again[i].image.name for i in range(len(again))} == names[1]


def image_names(source):
    return {source[i].image.name for i in range(len(source))}


@pytest.mark.parametrize(("share", "held"), [(0.2, 5), (0.01, 1), (0.99, 23)])
def test_a_holdout_of_a_small_table_is_an_exact_number_of_images(tmp_path, share, held):
    path = helpers.write_jsonl(tmp_path, helpers.write_photos(tmp_path, 24))
    train = RecordsSource("train", path=path, holdout=share)
    validation = RecordsSource("validation", path=path, holdout=share)
    assert (len(train), len(validation)) == (24 - held, held)
    counts = RecordsSource("all", path=path, holdout=share).images_per_split()
    assert counts == {"train": 24 - held, "validation": held}


def test_an_image_that_is_added_moves_one_other_at_most(tmp_path):
    names = helpers.write_photos(tmp_path, 24)
    options = {"path": tmp_path / "captions.jsonl", "holdout": 0.2}
    before: set[str] = set()
    for count in range(12, 25):
        helpers.write_jsonl(tmp_path, names[:count])
        held = image_names(RecordsSource("validation", **options))
        assert len((held ^ before) - {names[count - 1]}) <= 1 or not before
        before = held


def test_in_a_large_table_no_image_ever_moves(tmp_path, monkeypatch):
    monkeypatch.setattr(holdout, "EXACT_ROWS", 11)
    names = helpers.write_photos(tmp_path, 24)
    options = {"path": tmp_path / "captions.jsonl", "holdout": 0.4}
    helpers.write_jsonl(tmp_path, names[:12])
    before = image_names(RecordsSource("validation", **options))
    helpers.write_jsonl(tmp_path, names)
    assert before == image_names(RecordsSource("validation", **options)) & {*names[:12]}


def test_excluded_images_do_not_change_which_others_are_held_out(tmp_path):
    names = helpers.write_photos(tmp_path, 24)
    path = helpers.write_jsonl(tmp_path, names)
    (tmp_path / "excluded.txt").write_text("\n".join(names[:8]))
    held = image_names(RecordsSource("validation", path=path, holdout=0.4))
    train = RecordsSource("train", path=path, holdout=0.4, exclude=tmp_path / "excluded.txt")
    assert image_names(train) == {*names[8:]} - held


def test_a_validation_split_that_would_be_the_training_rows_is_refused(folder):
    with pytest.raises(ValueError, match=r"split_column.*holdout.*split='all'"):
        RecordsSource("validation", path=write(folder, "jsonl"))


def test_rows_of_one_image_have_ids_of_their_own(folder):
    path = write_jsonl(folder / "a.jsonl", [*table(), *table()])
    source = RecordsSource(path=path, join_rows=False)
    assert len({source[i].id for i in range(24)}) == 24


def flat(rows):
    """Rows as lists of captions -> a row per caption, first all first captions, then all second."""
    return [row | {"caption": row["caption"][k]} for k in range(2) for row in rows]


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_per_caption_gives_the_records_of_lists_of_captions(folder, kind):
    rows = [row | {"caption": [f"{row['caption']} a", "b"]} for row in table()]
    lists = RecordsSource(path=write_jsonl(folder / "lists.jsonl", rows))
    path = folder / f"flat.{kind}"
    if kind in ("csv", "tsv"):
        write_delimited(path, flat(rows))
    elif kind == "json":
        path.write_text(json.dumps(flat(rows)))
    else:
        write_jsonl(path, flat(rows))
    source = RecordsSource(path=path)
    assert [source[i] for i in range(len(source))] == [lists[i] for i in range(12)]
    assert source.rows == 24
    assert pickle.loads(pickle.dumps(source))[11] == source[11] == source[-1]
    with pytest.raises(IndexError):
        source[12]


def test_only_tables_with_rows_of_one_image_are_other_data_than_before(folder, caplog):
    caplog.set_level("INFO")
    path = write(folder, "jsonl")
    apart = RecordsSource(path=path, join_rows=False).fingerprint
    assert RecordsSource(path=path).fingerprint == apart
    path = write_jsonl(folder / "twice.jsonl", [*table(), *table()])
    apart = RecordsSource(path=path, join_rows=False).fingerprint
    assert not caplog.text
    assert RecordsSource(path=path).fingerprint != apart
    assert "24 rows of train are 12 records, one per image" in caplog.text


def test_damaged_rows_and_rows_without_image_are_joined_with_no_other(folder):
    rows = [*table(), *({"image": name, "caption": "x"} for name in ("", "", None, None))]
    path = write_jsonl(folder / "a.jsonl", rows)
    path.write_text(path.read_text() + '{"image": "p00\n{"image": "p01\n')
    source = RecordsSource(path=path)
    assert len(source) == source.rows == 18
    for index in range(12, 18):
        with pytest.raises(DataError, match=f"row {index + 1} of"):
            source[index]


HARD = {
    "negatives_column": "not",
    "negative_kinds_column": "kind",
    "positives_column": "same",
    "hard_images_column": "near",
    "id_column": "id",
}


def test_hard_texts_of_joined_rows_stay_with_their_captions(folder):
    rows = [
        {"image": "p00.jpg", "caption": ["a", "b"], "not": ["x", "y"], "kind": "k", "id": 1},
        {"image": "p01.jpg", "caption": "c", "near": [3, 9], "id": 2},
        {"image": "p00.jpg", "caption": "d", "near": [2], "same": ["e"], "id": 3},
        {
            "image": "p00.jpg",
            "caption": "f",
            "not": [["z"]],
            "kind": [["l"]],
            "near": [1, 2],
            "id": 4,
        },
    ]
    path = write_jsonl(folder / "a.jsonl", rows)
    source = RecordsSource(path=path, meta_columns=("id", "image"), **HARD)
    record = source[0]
    assert record.captions == ["a", "b", "d", "f"]
    assert record.negatives == [["x", "y"], ["x", "y"], [], ["z"]]
    assert record.negative_kinds == [["k", "k"], ["k", "k"], [], ["l"]]
    assert record.positives == [[], [], ["e"], []]
    # a record is named by its first row, and is no hard image of itself
    assert (record.id, record.hard_images, source[1].hard_images) == ("1", ["2"], ["1", "9"])
    assert source.find("4") == source.find("1") == record
    assert record.meta == {"id": [1, 3, 4], "image": "p00.jpg"}
    rows[3].pop("kind")
    source = RecordsSource(path=write_jsonl(path, rows), **HARD)
    with pytest.raises(
        DataError, match=r"row 1 of .* some rows of its image have kinds of their neg"
    ):
        source[0]


def test_rows_of_one_image_may_share_an_id_and_have_one_group(folder):
    rows = [row | {"id": n, "part": n // 12} for n, row in enumerate([*table(), *table()])]
    options = {"path": folder / "a.jsonl", "id_column": "id", "group_column": "part"}
    source = RecordsSource(path=write_jsonl(options["path"], rows), group_column="part")
    with pytest.raises(
        DataError, match=r"row 1 of .* group \(group_column\) is 0 and 1; .*join_rows"
    ):
        source[0]
    for row in rows:
        row |= {"id": row["image"], "part": "all"}
    write_jsonl(options["path"], rows)
    source = RecordsSource(**options)
    assert (source.find("p03.jpg"), source[3].group) == (source[3], "all")
    rows[20]["id"] = "p00.jpg"
    write_jsonl(options["path"], rows)
    with pytest.raises(DataError, match=r"row 21 of .*the id 'p00\.jpg' occurs twice"):
        RecordsSource(**options)


LISTS = {
    '["a dog", "a cat \\ud83d\\ude00"]': ["a dog", "a cat 😀"],  # JSON, as most libraries escape it
    "['a dog', \"a cat's tail\"]": ["a dog", "a cat's tail"],
    "['a dog' 'it says \"hi\"'\n \"a cat's\"]": ["a dog", 'it says "hi"', "a cat's"],  # an array
    '["one"]': ["one"],
    "[]": [],
    "[a man] in a [hat]": ["[a man] in a [hat]"],
    '["Hello"] is written there': ['["Hello"] is written there'],
    "[UNK]": ["[UNK]"],
}


@pytest.mark.parametrize("cell", LISTS)
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_cell_that_is_a_list_holds_the_captions_of_the_image(folder, cell, kind):
    writer = write_jsonl if kind == "jsonl" else write_delimited
    path = writer(folder / f"a.{kind}", [{"image": "p00.jpg", "caption": cell}])
    assert RecordsSource(path=path)[0].captions == LISTS[cell]


def test_a_list_of_captions_that_is_cut_short_is_damage(folder):
    path = write_delimited(folder / "a.csv", [{"image": "p00.jpg", "caption": "['a dog', 'a c"}])
    source = RecordsSource(path=path)
    with pytest.raises(DataError, match=r"row 1 of .* 'caption' is not a list"):
        source[0]


TORN = {  # name of the table -> rows, the torn ones, those that stay whole
    "closed by another.tsv": ['p00.jpg\t"open', "p01.jpg\tb", 'p02.jpg\tc"', "p03.jpg\td"],
    "closed within a text.tsv": ['p00.jpg\t"open', "p01.jpg\tb", 'p02.jpg\t"c" d', "p03.jpg\td"],
    "never closed.tsv": ['p00.jpg\t"open', "p01.jpg\tb", "p02.jpg\tc", "p03.jpg\td"],
    "commas.csv": ['p00.jpg,"open', "p01.jpg,b", 'p02.jpg,c"', "p03.jpg,d"],
    "quoted.csv": ['"p00.jpg","open', '"p01.jpg","b"', '"p02.jpg","c"', '"p03.jpg","d"'],
}


@pytest.mark.parametrize("name", TORN)
def test_a_quotation_mark_that_is_not_closed_takes_no_other_row_with_it(folder, name):
    path = folder / name
    header = "image\tcaption" if path.suffix == ".tsv" else "image,caption"
    path.write_text("\n".join([header, *TORN[name]]) + "\n")
    source = RecordsSource(path=path)
    assert len(source) == 4
    with pytest.raises(DataError, match=r"row 1 of .*mark that is not closed .*quoting=False"):
        source[0]
    assert source[1].captions == ["b"]
    assert source[3].captions == ["d"]
    assert [*source._table.rows()] == [*tables.Table.rows(source._table)]


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_a_column_that_is_there_twice_is_named(folder, kind):
    path = folder / f"a.{kind}"
    between = "\t" if kind == "tsv" else ","
    path.write_text("image,caption,caption\np00.jpg,a dog,a cat\n".replace(",", between))
    if kind == "jsonl":
        path.write_text('{"image": "p00.jpg", "caption": "a dog", "caption": "a cat"}\n')
    with pytest.raises(DataError, match="'caption'"):
        RecordsSource(path=path)[0]


@pytest.mark.parametrize(
    ("suffix", "between", "words"),
    [
        ("csv", "\t", "a .csv are separated by commas; these are separated by tabs"),
        ("tsv", ",", "a .tsv are separated by tabs; these are separated by commas"),
        ("csv", ";", "these are separated by semicolons"),
        ("csv", ",", ""),
    ],
)
def test_columns_are_separated_by_what_the_header_has(folder, caplog, suffix, between, words):
    path = folder / f"a.{suffix}"
    path.write_text(f"image{between}caption\np00.jpg{between}a dog\n")
    assert RecordsSource(path=path)[0].captions == ["a dog"]
    assert words in caplog.text
    assert bool(words) == bool(caplog.text)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", b'[{"image": "a", "caption": "b"}]', "got a list: the name of a list ends in"),
        (
            "a.jsonl",
            b'{"image": "a", "caption": "b"},\n' * 2,
            "row 1 of .* comma behind the object",
        ),
        ("a.csv", "image,caption".encode("utf-16-be"), "holds no rows"),
    ],
)
def test_a_table_without_a_readable_row_says_why(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=words):
        RecordsSource(path=tmp_path / name)


def test_captions_with_boxes_are_read_and_boxes_alone_are_left_out(folder, caplog):
    path = write_coco(folder / "coco.json")
    document = json.loads(path.read_text())
    for annotation in document["annotations"]:
        annotation["bbox"] = [0, 0, 5, 5]
    document["annotations"].insert(0, {"id": 99, "image_id": 103, "bbox": [1, 1, 2, 2]})
    path.write_text(json.dumps(document))
    source = RecordsSource(path=path)
    assert source[3].captions == [f"{CAPTIONS[3]} 0", f"{CAPTIONS[3]} 1"]
    assert "25 of 25 annotations have a box, which is not read" in caplog.text
    assert "1 of 25 annotations have no caption" in caplog.text


def test_given_ids_must_be_unique(folder):
    path = write_jsonl(folder / "a.jsonl", table(id=lambda i: min(i, 10)))
    with pytest.raises(DataError, match=r"row 12 .* id 10 occurs twice"):
        RecordsSource(path=path, id_column="id")


def test_a_pickled_source_is_small_and_reads_the_same(folder):
    for kind in KINDS:
        source = RecordsSource(path=write(folder, kind))
        expected = source[7]
        data = pickle.dumps(source)
        assert len(data) < 5_000
        del source  # with its open file, whose number means nothing in another process
        assert pickle.loads(data)[7] == expected


def test_the_fingerprint_changes_with_the_rows_and_the_choice_of_them(folder, monkeypatch):
    path = write(folder, "jsonl")
    first = RecordsSource(path=path).fingerprint
    assert RecordsSource(path=path).fingerprint == first
    held_out = RecordsSource(path=path, holdout=0.2).fingerprint
    assert held_out != first
    monkeypatch.setattr(holdout, "EXACT_ROWS", 0)  # other rows of the same file
    assert RecordsSource(path=path, holdout=0.2).fingerprint not in (first, held_out)
    path.write_text(path.read_text().replace("number 3", "number three"))
    assert RecordsSource(path=path).fingerprint != first


def test_empty_and_foreign_json_files_are_data_errors(tmp_path):
    for name, content in {
        "a.jsonl": "\n \n",
        "b.csv": "image,caption\n",
        "c.json": "[]",
        "d.json": '{"a": 1}',
        "e.json": '{"image": "a"}\n{"image": "b"}',
        "f.json": '{"images": [{"id": 1}], "annotations": [{"image_id": 1}]}',
        "g.csv": "",
    }.items():
        path = tmp_path / name
        path.write_text(content)
        with pytest.raises(DataError, match=name):
            tables.open_table(path)


def test_many_rows_are_found_by_their_positions_across_read_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "_CHUNK", 64)
    path = tmp_path / "a.jsonl"
    expected = [{"n": i, "text": "x" * (i % 50)} for i in range(300)]
    write_jsonl(path, expected)
    found = tables.open_table(path)
    assert [found[i] for i in range(len(found))] == expected


def one_record(tmp_path, row, **options):
    helpers.write_photos(tmp_path, 1)
    write_jsonl(tmp_path / "t.jsonl", [{"image": "photo_0.jpg"} | row])
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


def test_a_split_that_no_holdout_makes_is_refused(tmp_path):
    path = helpers.write_jsonl(tmp_path, helpers.write_photos(tmp_path, 12))
    held_out = RecordsSource("validation", path=path, holdout=0.5)
    for split in ("val", "test"):
        found = RecordsSource(split, path=path, holdout=0.5)
        assert [found[i].id for i in range(len(found))] == [
            held_out[i].id for i in range(len(held_out))
        ]
    with pytest.raises(ValueError, match=r"split 'nope' of .* a holdout makes 'train' and 'valid"):
        RecordsSource("nope", path=path, holdout=0.5)


def test_a_table_with_the_usual_other_names_gets_the_right_hint(tmp_path):
    path = tmp_path / "table.jsonl"
    path.write_text(json.dumps({"title": "a cat", "filepath": "a.jpg", "url": "x"}) + "\n")
    with pytest.raises(ValueError, match="did you mean image_column='filepath'"):
        RecordsSource("all", path=path)
    with pytest.raises(ValueError, match="did you mean caption_column='title'"):
        RecordsSource("all", path=path, image_column="filepath")

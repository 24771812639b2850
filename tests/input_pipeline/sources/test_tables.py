"""Tables as programs write them: every format and encoding, and damaged rows."""

import csv
import io
import json
import pickle

import pytest

from tests.support import helpers, table_files
from tests.support.table_files import CAPTIONS, KINDS, table, write, write_coco, write_delimited
from vlc_jax.input_pipeline.benchmarks import READERS
from vlc_jax.input_pipeline.commands import check
from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import make_source, tables
from vlc_jax.input_pipeline.sources.records import RecordsSource

MARK = "\ufeff"
ENCODINGS = {
    "utf-8 with a mark": lambda text: (MARK + text).encode(),
    "utf-16": lambda text: text.encode("utf-16"),
    "utf-16, big end first": lambda text: (MARK + text).encode("utf-16-be"),
    "utf-16 without a mark": lambda text: text.encode("utf-16-le"),
    "utf-16, big end first, without a mark": lambda text: text.encode("utf-16-be"),
    "utf-32": lambda text: text.encode("utf-32"),
}
# U+0A0A: in UTF-16 two bytes that each end a line of UTF-8
TEXTS = "a dog", 'two\nlines, a "quote"', "ein Hündchen", "一只猫", "a 😀", "\u0a0a line", "end"
ROWS = [
    {"image": f"photo_{n % 4}.jpg", "caption": caption, "split": ["train", "val"][n % 2]}
    for n, caption in enumerate(TEXTS)
]


@pytest.fixture
def folder(tmp_path):
    return table_files.write_images(tmp_path)


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


def test_coco_images_without_captions_are_left_out(folder, caplog):
    document = json.loads(write_coco(folder / "coco.json").read_text())
    document["annotations"] = [a for a in document["annotations"] if a["image_id"] != 105]
    (folder / "coco.json").write_text(json.dumps(document))
    assert len(RecordsSource(path=folder / "coco.json")) == 11
    assert "1 of 12 images have no caption" in caplog.text
    document["images"] = document["images"][1:]
    (folder / "coco.json").write_text(json.dumps(document))
    with pytest.raises(DataError, match=r"1 captioned image ids .* the first is 100"):
        RecordsSource(path=folder / "coco.json")


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


def test_a_stray_separator_or_quote_is_an_error_of_its_row(folder):
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
def test_byte_order_marks_and_blank_lines_do_not_matter(folder, kind):
    path = write(folder, kind)
    lines = path.read_bytes().splitlines()
    padded = b"\xef\xbb\xbf" + b"\r\n\r\n".join(lines[:4]) + b"\n" + b"\n".join(lines[4:])
    path.write_bytes(padded)
    source = RecordsSource(path=path)
    assert [source[i].captions[0] for i in range(len(source))] == CAPTIONS


TORN = {  # name of the table -> rows, the torn ones, those that stay whole
    "closed by another.tsv": ['p00.jpg\t"open', "p01.jpg\tb", 'p02.jpg\tc"', "p03.jpg\td"],
    "closed within a text.tsv": ['p00.jpg\t"open', "p01.jpg\tb", 'p02.jpg\t"c" d', "p03.jpg\td"],
    "never closed.tsv": ['p00.jpg\t"open', "p01.jpg\tb", "p02.jpg\tc", "p03.jpg\td"],
    "commas.csv": ['p00.jpg,"open', "p01.jpg,b", 'p02.jpg,c"', "p03.jpg,d"],
    "quoted.csv": ['"p00.jpg","open', '"p01.jpg","b"', '"p02.jpg","c"', '"p03.jpg","d"'],
}


@pytest.mark.parametrize("name", TORN)
def test_an_open_quotation_mark_takes_no_other_row_with_it(folder, name):
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
        ("a.csv", b"sep=;\r\nimage;caption\r\na.jpg;b\r\n", "first line, 'sep=;', is for Excel"),
        ("a.csv", b"image,caption\ra.jpg,b\r", "lines end with .* alone, from line 1 on"),
    ],
)
def test_a_table_without_a_readable_row_says_why(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=words):
        RecordsSource(path=tmp_path / name)


def test_captions_with_boxes_are_read_and_boxes_alone_are_not(folder, caplog):
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


def test_rows_are_found_across_read_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "_CHUNK", 64)
    path = tmp_path / "a.jsonl"
    expected = [{"n": i, "text": "x" * (i % 50)} for i in range(300)]
    helpers.write_rows(path, expected)
    found = tables.open_table(path)
    assert [found[i] for i in range(len(found))] == expected


def text_of(kind):
    if kind == "jsonl":
        return "".join(json.dumps(row, ensure_ascii=False) + "\r\n" for row in ROWS)
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, [*ROWS[0]], delimiter="\t" if kind == "tsv" else ",")
    writer.writeheader()
    writer.writerows(ROWS)
    return file.getvalue()


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
@pytest.mark.usefixtures("table_cache")
def test_a_table_has_the_same_records_in_every_encoding(tmp_path, kind, encoding):
    helpers.write_photos(tmp_path, 4)
    plain, path = tmp_path / f"plain.{kind}", tmp_path / f"a.{kind}"
    plain.write_bytes(text_of(kind).encode())
    path.write_bytes(ENCODINGS[encoding](text_of(kind)))
    options = {"split_column": "split", "join_rows": False}
    expected = RecordsSource("val", path=plain, **options)
    for _ in range(2):  # the second opening reads the index
        source = RecordsSource("val", path=path, **options)
        assert [source[n] for n in (2, 0, 1)] == [expected[n] for n in (2, 0, 1)]
        assert source.find(expected[1].id) == expected[1]
        assert pickle.loads(pickle.dumps(source))[2] == expected[2]
        assert [*source._table.rows()] == ROWS
    assert source.fingerprint != expected.fingerprint  # of the bytes


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_pair_without_header_is_no_other_in_another_encoding(tmp_path, encoding):
    helpers.write_photos(tmp_path, 2)
    path = tmp_path / "pairs.tsv"
    path.write_bytes(ENCODINGS[encoding]("photo_0.jpg\ta dog\nphoto_1.jpg\ta cat\n"))
    source = make_source("cc3m", "train", annotations=path, images=tmp_path)
    assert source[0].image == tmp_path / "photo_0.jpg"
    assert source[0].image.exists()
    assert source[1].captions == ["a cat"]


def test_a_spreadsheet_in_utf_16_is_checked_and_evaluated(tmp_path, capsys):
    names = helpers.write_photos(tmp_path, 4)
    path = tmp_path / "a.csv"
    # "Unicode text" of a spreadsheet: tabs
    lines = ["image\tcaption", *(f"{name}\tphoto of {name}" for name in names)]
    path.write_bytes("\r\n".join(lines).encode("utf-16"))
    assert check.main([str(path)]) == 0
    assert "4 of 4 records looked at: 4 usable, 0 bad" in capsys.readouterr().out
    benchmark = READERS["retrieval"](source="records", split="all", path=str(path))
    assert [case.captions for case in benchmark.cases] == [(f"photo of {name}",) for name in names]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_half_a_character_damages_its_row_only(tmp_path, kind):
    names = helpers.write_photos(tmp_path, 3)
    rows = {"csv": [f"{name},a{n}" for n, name in enumerate(names)]}
    rows["jsonl"] = [f'{{"image": "{name}", "caption": "a{n}"}}' for n, name in enumerate(names)]
    text = "\n".join([*{"csv": ["image,caption"], "jsonl": []}[kind], *rows[kind]]) + "\n"
    path = tmp_path / f"a.{kind}"
    path.write_bytes((MARK + text.replace("a1", "a\ud83d")).encode("utf-16-le", "surrogatepass"))
    source = RecordsSource(path=path)
    assert [source[n].captions for n in (0, 2)] == [["a0"], ["a2"]]
    with pytest.raises(DataError, match=r"row 2 of .* is not UTF-8"):
        source[1]


def test_a_table_that_ends_within_a_character_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("image,caption\na.jpg,a dog\n".encode("utf-16")[:-1])
    with pytest.raises(DataError, match=r"a\.csv is UTF-16-LE and damaged .*: copy it again"):
        tables.open_table(path)

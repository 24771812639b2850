"""Tables as programs write them: every encoding, byte order marks, damaged characters."""

import csv
import io
import json
import pickle

import pytest

from tests.support import helpers
from vlc_jax.input_pipeline.benchmarks import READERS
from vlc_jax.input_pipeline.commands import check
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import make_source, table_index, tables
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
CAPTIONS = "a dog", 'two\nlines, a "quote"', "ein Hündchen", "一只猫", "a 😀", "\u0a0a line", "end"
ROWS = [
    {"image": f"photo_{n % 4}.jpg", "caption": caption, "split": ["train", "val"][n % 2]}
    for n, caption in enumerate(CAPTIONS)
]


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
def test_a_table_has_the_same_records_in_every_encoding(tmp_path, monkeypatch, kind, encoding):
    monkeypatch.setattr(table_index, "_SMALL", 0)
    monkeypatch.setattr(table_index, "_SETTLED", 0)
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

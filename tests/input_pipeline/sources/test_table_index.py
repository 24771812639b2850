"""The index of a large table: the second opening is fast, and nothing else changes."""

import csv
import json
import os
import pickle
import shutil
import types

import numpy as np
import psutil
import pytest

from tests.support import forks, helpers
from vlc_jax.input_pipeline.sources import holdout, table_index, tables
from vlc_jax.input_pipeline.sources.records import RecordsSource
from vlc_jax.input_pipeline.stores import progress

ROWS = 2000
OPTIONS = {
    "holdout": 0.3,
    "id_column": "name",
    "hard_images_column": "near",
    "join_rows": False,  # of eight images
}


pytestmark = pytest.mark.usefixtures("table_cache")


@pytest.fixture(params=["csv", "jsonl"])
def path(request, tmp_path):
    """2,000 rows of 2 kB and the eight photographs that they name."""
    names = helpers.write_photos(tmp_path, 8)
    path = tmp_path / f"captions.{request.param}"
    rows = [
        {"image": names[i % 8], "caption": f"{i}, " + 500 * "long", "name": f"n{i}", "near": "[]"}
        for i in range(ROWS)
    ]
    with path.open("w", newline="") as file:
        if request.param == "jsonl":
            file.writelines(json.dumps(row) + "\n" for row in rows)
        else:
            writer = csv.DictWriter(file, [*rows[0]])
            writer.writeheader()
            writer.writerows(rows)
    return path


def look(path):
    """What a source gives, and the bytes that this process read for it."""
    before = psutil.Process().io_counters().read_chars
    source = RecordsSource("train", path=path, **OPTIONS)
    found = source.fingerprint, len(source), source[5], source.find(source[7].id).captions
    return found, psutil.Process().io_counters().read_chars - before


def forbid_whole_readings(monkeypatch):
    def refused(*_):
        raise AssertionError("the whole table is read")

    for owner in (tables.JsonLinesTable, tables.DelimitedTable):
        monkeypatch.setattr(owner, "_spans", refused)
    monkeypatch.setattr(tables.Table, "_lines", refused)


def test_a_second_opening_reads_a_fraction_of_the_table(path):
    first, read = look(path)
    assert read > 2 * path.stat().st_size
    again, read = look(path)
    assert again == first
    assert read < 0.36 * path.stat().st_size  # 200 rows of 2,000 are looked at, and the index


def test_another_split_of_the_same_table_is_no_other_reading(path, monkeypatch):
    options = OPTIONS | {"join_rows": True}
    train = RecordsSource("train", path=path, **options)
    forbid_whole_readings(monkeypatch)
    rest = RecordsSource("validation", path=path, **options)
    assert (train.rows + rest.rows, len(train) + len(rest)) == (ROWS, 8)
    assert rest.find(rest[0].id) == rest[0]


def rewrite_with_the_old_times(path, content):
    old = path.stat()
    while path.stat().st_ctime_ns == old.st_ctime_ns:  # the kernel's clock ticks every 4 ms
        path.write_bytes(content)
        os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (old.st_size, old.st_mtime_ns)


def test_other_bytes_of_the_same_size_and_time_are_noticed(path):
    (fingerprint, *_), _ = look(path)
    rewrite_with_the_old_times(path, path.read_bytes().replace(b"long", b"tall"))
    (other, _, record, _), _ = look(path)
    assert other != fingerprint
    assert "tall" in record.captions[0]


def test_a_table_that_was_only_copied_keeps_its_index(path, monkeypatch):
    first, _ = look(path)
    os.utime(path, (1, 1))
    forbid_whole_readings(monkeypatch)
    again, read = look(path)
    assert again == first
    assert read > path.stat().st_size  # hashed once more


def test_a_table_changed_just_now_is_hashed_at_the_next_opening(path, monkeypatch):
    monkeypatch.setattr(table_index, "_SETTLED", 3600)
    look(path)
    _, read = look(path)
    assert read > path.stat().st_size


DAMAGED = {
    "cut": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "another byte": lambda content: content.replace(b"PK", b"PX", 1),
    "another value": lambda content: content[:300] + bytes([content[300] ^ 1]) + content[301:],
    "a pickle": lambda content: pickle.dumps(np.array([None])),
    "no zip": lambda content: b"[" * 5000,
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_index_is_ignored_and_made_anew(path, kind, monkeypatch, caplog, table_cache):
    first, _ = look(path)
    for file in table_cache.rglob("*.npz"):
        file.write_bytes(DAMAGED[kind](file.read_bytes()))
    assert look(path)[0] == first
    forbid_whole_readings(monkeypatch)
    assert look(path)[0] == first
    assert not caplog.records


def test_a_table_without_a_place_for_its_index_is_read_and_told(path, tmp_path, caplog):
    (tmp_path / "cache").touch()
    first, _ = look(path)
    assert look(path)[0] == first
    assert f"{path} is read whole at every start" in caplog.text


def test_a_small_table_has_no_index(path, monkeypatch, table_cache):
    monkeypatch.setattr(table_index, "_SMALL", path.stat().st_size + 1)
    look(path)
    assert not table_cache.exists()


@pytest.mark.parametrize("path", ["csv"], indirect=True)
def test_two_processes_open_a_table_at_once(path, tmp_path, monkeypatch, table_cache):
    script = tmp_path / "open.py"
    script.write_text(
        "from vlc_jax.input_pipeline.sources import table_index\n"
        "from vlc_jax.input_pipeline.sources.records import RecordsSource\n"
        "table_index._SMALL = 0\n"
        f"source = RecordsSource('train', path={str(path)!r}, **{OPTIONS!r})\n"
        "print(source.fingerprint, source.find(source[7].id).captions[0][:9])\n"
    )
    jobs = [forks.Job([str(script)], helpers.ROOT, helpers.environment()) for _ in range(2)]
    said = [job.communicate(60) for job in jobs]
    forbid_whole_readings(monkeypatch)
    (fingerprint, _, _, captions), _ = look(path)
    assert said == [(f"{fingerprint} {captions[0][:9]}\n", "")] * 2
    assert not [*table_cache.rglob("*.writing")]


MESSY = {
    "a.csv": b'image,caption\na.jpg,"two\nlines, and a ""quote"""\n\n\r\nb.jpg,x,y\nc.jpg,"x"y\n'
    b'd.jpg,\xff\ne.jpg,a\rb\nf.jpg,"\xff\ng\n"\nh.jpg,fine\ni.jpg,"no end\n',
    "a.tsv": b'image\tcaption\na.jpg\t"a" b\nb.jpg\tfine\n',
    "a.jsonl": b'\xef\xbb\xbf{"image": "a"}\n\n  \n{torn\n[1]\n{"image": "\xff"}\n{"image": "b"}',
}


@pytest.mark.parametrize("name", MESSY)
@pytest.mark.parametrize("block", [1, 1000])
def test_all_rows_at_once_are_those_read_one_by_one(tmp_path, monkeypatch, name, block):
    monkeypatch.setattr(tables, "_BLOCK", block)
    (tmp_path / name).write_bytes(MESSY[name])
    table = tables.open_table(tmp_path / name)
    found = [*table.rows()]
    assert found == [*tables.Table.rows(table)]
    assert None in found
    assert any(found)


def test_a_share_of_the_keys_of_a_large_table_is_exact(monkeypatch):
    monkeypatch.setattr(holdout, "EXACT_ROWS", 0)
    keys = np.array([0, 1, 1 << 62, (1 << 62) + 1, (1 << 64) - 1], np.uint64)
    for share in (0.0, 0.25, 0.5, np.nextafter(0.25, 1), np.nextafter(1.0, 0)):
        expected = [int(key) < share * 2**64 for key in keys]
        assert holdout.held_out(keys, float(share)).tolist() == expected


def test_readings_of_a_table_one_after_the_other_are_one(monkeypatch, tmp_path, capsys):
    now = 100.0
    monkeypatch.setattr(progress, "time", types.SimpleNamespace(monotonic=lambda: now))
    shown = progress.Progress(tmp_path / "a.csv")
    for seconds in (2.0, 0.5, 2.0):  # of two readings, and between them
        shown.begin()
        now += seconds
        shown.show(0.5)
        shown.end()
    assert capsys.readouterr().err == "reading a.csv: 50 %\n"
    now += 10
    shown.begin()
    now += 2
    shown.show(0.7)
    assert capsys.readouterr().err == ""


def test_a_long_reading_says_how_far_it_is(path, monkeypatch, capsys, table_cache):
    look(path)
    assert capsys.readouterr().err == ""
    shutil.rmtree(table_cache)
    monkeypatch.setattr(progress, "_FIRST", 0)
    monkeypatch.setattr(progress, "_EVERY_IN_A_FILE", 0)
    monkeypatch.setattr(tables, "_BLOCK", 500)
    look(path)
    said = capsys.readouterr().err
    assert f"reading {path.name}: 25 %, 500 rows\n" in said
    assert f"reading {path.name}: 100 %\n" in said

"""Parquet tables are read by row groups, with images beside them or inside."""

import datetime
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from tests.support import helpers, miniature
from vlc_jax.configs import records as config_of_records
from vlc_jax.configs.common import pretrained
from vlc_jax.input_pipeline.images import image_ops, parquet_file
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import make_source, row_keys, tables
from vlc_jax.input_pipeline.sources.records import RecordsSource

ROWS, GROUP = 24, 5


def write(path, rows=ROWS, group=GROUP, start=0, **columns):
    numbers = range(start, start + rows)
    pictures = [{"bytes": miniature.picture(n), "path": f"{n}.jpg"} for n in numbers]
    columns = {"image": pictures, "caption": [f"picture {n}" for n in numbers], **columns}
    path.parent.mkdir(exist_ok=True)
    parquet.write_table(pyarrow.table(columns), path, row_group_size=group)
    return path


def records(path, **options):
    return make_source("records", "all", path=path, **options)


@pytest.fixture
def groups(monkeypatch):
    """Row groups that are read, as (file's name, group)."""
    seen, read = [], parquet_file._group.__wrapped__
    for cached in (parquet_file._open, parquet_file._group, parquet_file._images):
        cached.cache_clear()

    def watched(file, columns, group):
        seen.append((file.name, group))
        return read(file, columns, group)

    monkeypatch.setattr(parquet_file, "_group", watched)
    return seen


def test_a_row_reads_its_row_group_alone_with_its_picture(tmp_path, groups):
    source = records(write(tmp_path / "a.parquet"))
    assert len(source) == ROWS
    groups.clear()
    for number in (13, 0, 23):
        record = source[number]
        assert record.captions == [f"picture {number}"]
        same = image_ops.decode(miniature.picture(number)) == image_ops.decode(record.image)
        assert same.all()
    assert groups == [("a.parquet", 2), ("a.parquet", 0), ("a.parquet", 4)]
    assert source[13].id == "a/13#14"


def test_the_image_of_a_hard_negative_may_be_inside_too(tmp_path):
    others = [{"bytes": miniature.picture(n + 50), "path": None} for n in range(ROWS)]
    texts = [f"no picture {n}" for n in range(ROWS)]
    path = write(tmp_path / "a.parquet", negatives=texts, negative_image=others)
    options = {"negatives_column": "negatives", "negative_image_column": "negative_image"}
    source = records(path, **options)
    (name,) = source[7].hard_images
    negative = source.find(name)
    assert list(negative.captions) == ["no picture 7"]
    expected = image_ops.decode(miniature.picture(57))
    assert (image_ops.decode(negative.image) == expected).all()


def test_files_of_a_folder_are_one_table_sorted_by_name(tmp_path):
    folder = tmp_path / "set"
    write(folder / "train-1.parquet", 7, start=10)
    write(folder / "train-0.parquet", 10)
    source = records(folder)
    captions = [source[n].captions[0] for n in range(len(source))]
    assert captions == [f"picture {n}" for n in range(17)]
    assert (source[9].id, source[10].id) == ("train-0/9#10", "train-1/0#11")
    assert [row["caption"] for row in tables.open_table(folder).rows()] == captions
    for path in (folder, folder / "train-1.parquet"):
        assert config_of_records.count_images(str(path)) == config_of_records.ENOUGH
        assert pretrained.source_of(str(path)) == {"source": "records", "path": str(path)}
    before = source.fingerprint
    write(folder / "train-1.parquet", 7, start=11)
    assert records(folder).fingerprint != before
    parquet.write_table(pyarrow.table({"other": [1]}), folder / "train-2.parquet")
    with pytest.raises(DataError, match=r"train-2\.parquet has other columns"):
        records(folder)


def test_what_a_source_holds_does_not_grow_with_the_rows(tmp_path):
    sizes = []
    for rows in (100, 40_000):
        columns = {"image": [b"\xff"] * rows, "caption": ["a"] * rows}
        path = tmp_path / "a.parquet"
        parquet.write_table(pyarrow.table(columns), path, row_group_size=rows // 10)
        parquet_file._open.cache_clear(), parquet_file._ends.cache_clear()
        source = records(path)
        assert len(source) == rows
        sizes.append(len(pickle.dumps(source)))
    assert abs(sizes[0] - sizes[1]) < 50


def test_threads_and_copies_of_a_source_share_a_file(tmp_path):
    source = pickle.loads(pickle.dumps(records(write(tmp_path / "a.parquet"))))
    order = np.random.default_rng(0).integers(0, ROWS, 200).tolist()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda number: source[number].captions[0], order))
    assert found == [f"picture {number}" for number in order]


def test_cells_that_json_lacks_are_text_and_damage_is_of_its_row(tmp_path):
    texts = pyarrow.array([b"a", b"\xff", b"c"], pyarrow.binary()).view(pyarrow.string())
    columns = {"image": ["0.jpg", "1.jpg", "2.jpg"], "caption": texts}
    columns["day"] = [datetime.date(2026, 1, number) for number in (1, 2, 3)]
    parquet.write_table(pyarrow.table(columns), path := tmp_path / "a.parquet")
    (tmp_path / "0.jpg").write_bytes(miniature.picture(0))
    source = records(path, meta_columns=["day"])
    assert source[2].meta == {"day": "2026-01-03"}
    with pytest.raises(DataError, match=r"row 1 of .*a\.parquet"):
        source[1]
    assert [row and row["caption"] for row in tables.open_table(path).rows()] == ["a", None, "c"]


@pytest.mark.parametrize("cut", [0, 4, 200])
def test_a_file_that_is_cut_is_named(tmp_path, cut):
    path = write(tmp_path / "a.parquet")
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DataError, match=r"a\.parquet is no Parquet file"):
        records(path)


@pytest.mark.usefixtures("table_cache")
def test_keys_of_a_folder_are_read_again_once_a_file_has_changed(tmp_path, monkeypatch):
    def keys():
        parquet_file._open.cache_clear(), parquet_file._ends.cache_clear()
        table = tables.open_table(tmp_path / "set")
        return row_keys.read(table, {"caption": lambda row, _: row["caption"]})["caption"]

    write(tmp_path / "set/a.parquet")
    first = keys()
    with monkeypatch.context() as patch:
        patch.setattr(row_keys, "_compute", lambda *_: pytest.fail("read again"))
        assert (keys() == first).all()
    write(tmp_path / "set/a.parquet", start=1)
    assert (keys() != first).all()


@pytest.mark.parametrize(
    "kind", [pyarrow.binary(), pyarrow.large_binary(), pyarrow.binary(9), pyarrow.binary_view()]
)
def test_bytes_that_are_texts_are_read_as_texts(tmp_path, kind):
    names = helpers.write_photos(tmp_path, 2)
    columns = {
        "image": pyarrow.array([name.encode().ljust(11, b"\0")[:11] for name in names]),
        "caption": pyarrow.array([b"a dog".ljust(9, b"\0"), b"a caf\xc3\xa9\0\0"], kind),
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    source = RecordsSource(path=tmp_path / "a.parquet")
    assert [source[n].captions for n in range(2)] == [["a dog"], ["a café"]]
    assert [source[n].image.name for n in range(2)] == names
    columns["caption"] = [b"\xff", b"\xfe"]
    parquet.write_table(pyarrow.table(columns), tmp_path / "b.parquet")
    with pytest.raises(DataError, match="'caption' holds bytes that are no text"):
        RecordsSource(path=tmp_path / "b.parquet")[0]


def test_an_error_of_a_damaged_file_is_one_line(tmp_path, monkeypatch):
    path = write(tmp_path / "a.parquet")

    def damaged(*args, **kwargs):
        raise ValueError("a\nb\x1b[31m\x00c")

    monkeypatch.setattr(parquet_file, "_parts", damaged)
    with pytest.raises(DataError) as error:
        parquet_file.read_rows(path)
    assert str(error.value) == f"{path} is damaged: a b [31m c"

"""Images inside Parquet files, read by several threads."""

import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow
import pytest
from pyarrow import parquet

from vlc_jax.input_pipeline.images import parquet_file
from vlc_jax.input_pipeline.record import DataError, PackedImage


def test_threads_read_a_file_one_at_a_time(tmp_path, monkeypatch):
    """A ParquetFile that several threads read may end the process."""
    images = [bytes([i]) * 10 for i in range(40)]
    path = tmp_path / "images.parquet"
    parquet.write_table(pyarrow.table({"image": images}), path, row_group_size=5)
    read, inside, most = parquet_file._images, [], []

    def watched(*place):
        inside.append(1)
        most.append(len(inside))
        time.sleep(1e-3)  # long enough for another thread to come in
        inside.pop()
        return read(*place)

    monkeypatch.setattr(parquet_file, "_images", watched)
    with ThreadPoolExecutor(8) as pool:
        packed = [PackedImage(path, row, "image") for row in range(40)]
        assert list(pool.map(parquet_file.image_bytes, packed)) == images
    assert max(most) == 1


def test_a_table_is_not_unpacked_without_end(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": ["a photo " * 100] * 9_000}), path)
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(parquet_file, "MAX_BYTES", 10**6)
    with pytest.raises(DataError, match=r"a\.parquet unpacks to more than 1,000,000 bytes"):
        parquet_file.read_rows(path, ("text",))


def test_a_cell_of_another_type_or_a_missing_row_is_a_bad_record(tmp_path):
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"a": [7, 8], "b": [[1], None]}), path)
    for image in (("a", None), ("a", 0), ("b", None), ("b", 0), ("c", None)):
        for row in (0, 1, 2):
            with pytest.raises(DataError, match=r"a\.parquet"):
                parquet_file.image_bytes(PackedImage(path, row, *image))

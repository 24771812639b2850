"""Images inside Parquet files, read by several threads."""

import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow
from pyarrow import parquet

from vlc_jax.input_pipeline.images import packed_images
from vlc_jax.input_pipeline.record import PackedImage


def test_threads_read_a_file_one_at_a_time(tmp_path, monkeypatch):
    """A ParquetFile that several threads read may end the process."""
    images = [bytes([i]) * 10 for i in range(40)]
    path = tmp_path / "images.parquet"
    parquet.write_table(pyarrow.table({"image": images}), path, row_group_size=5)
    read, inside, most = packed_images._group, [], []

    def watched(*place):
        inside.append(1)
        most.append(len(inside))
        time.sleep(1e-3)  # long enough for another thread to come in
        inside.pop()
        return read(*place)

    monkeypatch.setattr(packed_images, "_group", watched)
    with ThreadPoolExecutor(8) as pool:
        packed = [PackedImage(path, row, "image") for row in range(40)]
        assert list(pool.map(packed_images.read_packed, packed)) == images
    assert max(most) == 1

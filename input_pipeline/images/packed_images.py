"""Images inside Parquet files, as Hugging Face packs data sets."""

from vlc_jax.input_pipeline.images import parquet_file
from vlc_jax.input_pipeline.record import DataError, PackedImage


def read_packed(image: PackedImage) -> bytes:
    """Encoded bytes of an image. Raises DataError if the cell has none."""
    value = parquet_file.cell(image.file, image.column, image.row)
    if image.item is not None:
        is_there = isinstance(value, list) and image.item < len(value)
        value = value[image.item] if is_there else None
    data = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(data, bytes):
        raise DataError(
            f"row {image.row} of {image.file} has no image bytes in column {image.column!r}; "
            f"got {value!r:.80}"
        )
    return data

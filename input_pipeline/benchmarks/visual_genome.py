"""Images of Visual Genome, which are split into two folders."""

from pathlib import Path

from vlc_jax.input_pipeline.benchmarks import published

FOLDERS = ("VG_100K", "VG_100K_2")


def image(files: published.Files, name: str) -> Path:
    """The path of an image in one of the two folders, or directly in the folder of images, as in
    the archives of some sets."""
    # a stat per folder and image: the annotations do not tell which folder has it
    paths = [files.image(f"{folder}/{name}") for folder in FOLDERS] + [files.image(name)]
    return next((path for path in paths if path.is_file()), paths[0])

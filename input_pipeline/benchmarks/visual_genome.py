"""Images of Visual Genome, which come in two folders."""

from pathlib import Path

from vlc_jax.input_pipeline.benchmarks.published_files import PublishedFiles

FOLDERS = ("VG_100K", "VG_100K_2")


def image(files: PublishedFiles, name: str) -> Path:
    """The path of an image in whichever of the two folders it is; or beside them, where a set's
    own archive is given as the folder of images."""
    places = [files.image(f"{folder}/{name}") for folder in FOLDERS] + [files.image(name)]
    return next((place for place in places if place.is_file()), places[0])

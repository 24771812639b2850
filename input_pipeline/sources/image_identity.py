"""Image identities: one name per image, independent of the folder or year of its publication.

coco:184613     COCO_val2014_000000184613.jpg, 000000184613.jpg (ids are the same in every year)
vg:2401814      VG_100K/2401814.jpg, VG_100K_2/2401814.jpg
file:a_cat.jpg  any other name, without its folders
"""

import re
from pathlib import Path, PurePosixPath

from vlc_jax.input_pipeline.stores import text_file

_COCO = re.compile(r"(?:COCO_(?:train|val|test)20\d\d_)?(\d{12})\.jpe?g", re.IGNORECASE)
_VISUAL_GENOME = re.compile(r"(?:^|/)VG_100K(?:_2)?/(\d+)\.jpe?g$", re.IGNORECASE)
_KINDS = ("coco:", "vg:", "file:")


def image_identity(name: str) -> str:
    """The identity of an image by its file name, with or without folders."""
    name = name.replace("\\", "/")
    if match := _VISUAL_GENOME.search(name):
        return f"vg:{int(match[1])}"
    last = PurePosixPath(name).name
    if match := _COCO.fullmatch(last):
        return f"coco:{int(match[1])}"
    return f"file:{last}"


def read_image_list(path: Path) -> frozenset[str]:
    """Reads a list of images, one per line: identities, or file names.

    Raises ValueError for a missing file, DataError for a file that is no text.
    """
    if not path.is_file():
        raise ValueError(f"exclude: no file {path}")
    lines = [line.strip() for line in text_file.lines(path)]
    return frozenset(
        line if line.startswith(_KINDS) else image_identity(line) for line in lines if line
    )

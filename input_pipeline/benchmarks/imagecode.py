"""ImageCoDe: ten similar images, and a description that fits only one of them.

Krojer et al., "Image Retrieval from Contextual Descriptions" (ACL 2022),
github.com/McGill-NLP/imagecode. Uses the validation descriptions, called test in MIEB. Unverified:
the images were not available; their folders are from the authors' README and zero_shot.py. MIEB's
format (query, corpus, qrels) is not supported: its file names were not available.
"""

from collections.abc import Iterator
from pathlib import Path

from vlc_jax.input_pipeline.benchmarks import published
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

IMAGES = 10  # per set
_INDICES = {str(index): index for index in range(IMAGES)}
# prefix of sets of photographs; other sets are video frames
_STATIC = "open-images"


@published.reader
def imagecode(files: published.Files) -> Benchmark:
    """2,302 descriptions of one image out of ten, in 1,039 sets of images.

    accuracy, the headline: over all cases; accuracy/static (Open Images, 430 cases) and
      accuracy/video (1,872), as in the paper.
    Descriptions are stripped, as in the authors' code.
    """
    return files.benchmark(_cases(files))


def _cases(files: published.Files) -> Iterator[Case]:
    path, sets = files.folder / files.file, files.json(files.file)
    if not isinstance(sets, dict) or not sets:
        raise DataError(f"{path} is no object of image sets; {files.origin.how_to_get}")
    number = 0
    for name, descriptions in sets.items():
        if not isinstance(descriptions, dict) or not descriptions.keys() <= _INDICES.keys():
            raise DataError(
                f"{path}: set {name!r} needs an object, index of an image from 0 to {IMAGES - 1} "
                f"-> description; got {descriptions!r:.80}"
            )
        pictures = _pictures(files.image(name))
        for key, text in descriptions.items():
            index = _INDICES[key]
            if not isinstance(text, str):
                raise DataError(f"{path}: set {name!r}, image {key} has no text; got {text!r:.80}")
            yield Case(
                published.case_id(number, name, key),
                # the described image first, as in every case of this protocol
                (pictures[index], *pictures[:index], *pictures[index + 1 :]),
                (text.strip(),),
                "static" if name.startswith(_STATIC) else "video",
                {"record": name},
            )
            number += 1


def _pictures(folder: Path) -> tuple[Path, ...]:
    """The ten images of a set, in the order of the annotations' indices.

    Numbers in names may be frame numbers with gaps: index k is the k-th smallest number. Without
    the folder the names are img0.jpg to img9.jpg; decoding then reports them as missing.
    """
    if not folder.is_dir():
        return tuple(folder / f"img{index}.jpg" for index in range(IMAGES))
    paths = {path.stem.removeprefix("img"): path for path in folder.glob("img*.jpg")}
    if len(paths) != IMAGES or not all(number.isdecimal() for number in paths):
        raise DataError(
            f"{folder} needs {IMAGES} images imgNUMBER.jpg; got {sorted(paths)!r:.80}: "
            "unpack the image sets again"
        )
    return tuple(paths[number] for number in sorted(paths, key=int))

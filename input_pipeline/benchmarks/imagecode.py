"""ImageCoDe: ten similar images, and a description that is right for one of them only.

Krojer et al., "Image Retrieval from Contextual Descriptions" (ACL 2022),
github.com/McGill-NLP/imagecode. Its descriptions of the validation set are read, those that MIEB
calls test. The images were not to be had; their folders are as the authors' README and zero_shot.py
have them. MIEB's packing (query, corpus, qrels) is not read: names of its files were not to be had.
"""

from collections.abc import Iterator
from pathlib import Path

from vlc_jax.input_pipeline.benchmarks.published_files import Origin, PublishedFiles, case_id
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

FILE = "valid_data.json"
IMAGES = 10  # of each set
ORIGIN = Origin(
    protocol="choice",
    folder="imagecode",
    files=(FILE,),
    images="imagecode/image-sets",
    source="github.com/McGill-NLP/imagecode (data/; its README links the archive of image sets)",
    licence="MIT; images: those of MSR-VTT, Video Storytelling, YouCook and Open Images",
    cases=2302,
    overlap="Open Images, MSR-VTT",
)
_INDICES = {str(index): index for index in range(IMAGES)}
_STATIC = "open-images"  # begins the names of sets of photographs; the others are frames of videos


def imagecode(
    root: str | Path = "",
    count: int | None = None,
    folder: str | Path | None = None,
    images: str | Path | None = None,
) -> Benchmark:
    """2,302 descriptions of one image out of ten, the images of 1,039 sets.

    accuracy, the headline: over all cases; accuracy/static (Open Images, 430 cases) and
      accuracy/video (1,872), as the paper has them.
    Descriptions lose the blanks around them, as in the authors' code.
    """
    files = PublishedFiles(ORIGIN, root, folder, images)
    return files.benchmark("imagecode", _cases(files), count)


def _cases(files: PublishedFiles) -> Iterator[Case]:
    path, sets = files.folder / FILE, files.json(FILE)
    if not isinstance(sets, dict) or not sets:
        raise DataError(f"{path} is no object of image sets; {ORIGIN.how_to_get}")
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
                case_id(number, name, key),
                (pictures[index], *pictures[:index], *pictures[index + 1 :]),
                (text.strip(),),
                "static" if name.startswith(_STATIC) else "video",
                {"record": name},
            )
            number += 1


def _pictures(folder: Path) -> tuple[Path, ...]:
    """The ten images of a set in the order that indices count in.

    Numbers in names may be those of frames, with gaps: an index is a place in their order. Where
    there is no folder, names are img0.jpg to img9.jpg, which are then seen to be missing.
    """
    if not folder.is_dir():
        return tuple(folder / f"img{index}.jpg" for index in range(IMAGES))
    found = {path.stem.removeprefix("img"): path for path in folder.glob("img*.jpg")}
    if len(found) != IMAGES or not all(number.isdecimal() for number in found):
        raise DataError(
            f"{folder} needs {IMAGES} images imgNUMBER.jpg; got {sorted(found)!r:.80}: "
            "unpack the image sets again"
        )
    return tuple(found[number] for number in sorted(found, key=int))


READERS = {"imagecode": (imagecode, ORIGIN)}

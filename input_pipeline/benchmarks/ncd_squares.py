"""NCD squares: two fruits or vegetables side by side, and captions of their colours.

Composites of the Natural Color Dataset by Kang et al., "Is CLIP Ideal? No. Can We Fix It? Yes!"
(ICCV 2025); read like github.com/Raphoo/DCSM_Ideal_CLIP. The only annotation is the image's name,
COLOUR_OBJECT_COLOUR_OBJECT.png. Unverified: the images were not available, and the numbers of cases
are unknown. The argmax there counts ties as correct ("first_index" here).
"""

from collections.abc import Iterator

from vlc_jax.input_pipeline.benchmarks import published
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

_TEXT = "A picture of a {} {} and a {} {}"
SUBSETS = ("ncd_subset1", "ncd_subset2")  # captions with the first, or the second, object first


@published.reader
def ncd_squares(files: published.Files, subsets: tuple[str, ...] = SUBSETS) -> Benchmark:
    """Two cases per image, with two captions each: "A picture of a red apple and a blue corn" and
    "A picture of a blue apple and a red corn"; in the other case the second object comes first.

    accuracy/subset=ncd_subset1, accuracy/subset=ncd_subset2: as in the paper; accuracy_macro, the
      headline: their mean.
    Images named MIRROR are skipped, as in the authors' code.
    """
    summary = ("accuracy_macro", *(f"accuracy/subset={subset}" for subset in subsets))
    return files.by_subset(subsets, SUBSETS, _subset, summary=summary)


def _subset(files: published.Files, subset: str) -> Iterator[Case]:
    # the first pattern if there is none, for the message of a missing file
    patterns = [each for each in files.origin.files if files.has(each)] or [files.file]
    paths = sorted(path for pattern in patterns for path in files.paths(pattern))
    for number, path in enumerate(path for path in paths if "MIRROR" not in path.name):
        match path.stem.split("_"):
            case [colour, thing, other_colour, other, *_]:
                pass
            case _:
                raise DataError(
                    f"{path} is not called COLOUR_OBJECT_COLOUR_OBJECT{path.suffix}; is it an "
                    f"image of this set?"
                )
        if subset == SUBSETS[1]:
            colour, thing, other_colour, other = other_colour, other, colour, thing
        texts = (
            _TEXT.format(colour, thing, other_colour, other),
            _TEXT.format(other_colour, thing, colour, other),
        )
        yield files.case(number, path.name, texts, {"subset": subset}, prefix=subset)

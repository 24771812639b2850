"""SPEC: generated images that differ in a size, position, existence or count, and their captions.

Peng et al., "Synthesize, Diagnose, and Optimize: Towards Fine-Grained Vision-Language
Understanding" (CVPR 2024); read like github.com/wjpoom/SPEC. Unverified: the files were not
available, and the numbers of cases are unknown. Both directions are evaluated, captions per image
and images per caption. The correct option has any index there, so its argmax counts some ties as
correct.
"""

from collections.abc import Iterator

from vlc_jax.input_pipeline.benchmarks import fields, published
from vlc_jax.input_pipeline.case import Average, Benchmark, Case

SUBSETS = (
    "absolute_size",
    "relative_size",
    "absolute_spatial",
    "relative_spatial",
    "existence",
    "count",
)
FILES = {"image_to_text": "image2text.json", "text_to_image": "text2image.json"}


@published.reader
def spec(
    files: published.Files,
    subsets: tuple[str, ...] = SUBSETS,
    directions: tuple[str, ...] = tuple(FILES),
) -> Benchmark:
    """Cases of an image and captions, and cases of a caption and images.

    accuracy_image_to_text, the headline, and accuracy_text_to_image: means over subsets, as in the
      authors' code. accuracy/image_to_text=count etc.: per subset.
    count: total number of cases.
    """
    published.check_options("subsets", subsets, SUBSETS)
    published.check_options("directions", directions, FILES)
    cases = (
        case
        for direction in directions
        for subset in subsets
        for case in _cases(files, subset, direction)
    )
    averages = {direction: Average((direction,)) for direction in directions}
    summary = tuple(f"accuracy_{direction}" for direction in directions)
    return files.benchmark(cases, averages, summary=summary)


def _cases(files: published.Files, subset: str, direction: str) -> Iterator[Case]:
    name = f"{subset}/{FILES[direction]}"
    for number, row in enumerate(
        files.objects(name, "query", keys=fields.texts, label=fields.anything)
    ):
        query = row["query"]
        keys = files.correct_first(number, row["keys"], "label", row["label"])
        # a query is one side of the case, its keys are the other
        by_image = direction == "image_to_text"
        pictures, captions = ((query,), keys) if by_image else (keys, (query,))
        pictures = tuple(f"{subset}/{picture}" for picture in pictures)
        yield Case(
            f"{subset}_{direction}_{published.case_id(number, query if by_image else keys[0])}",
            tuple(map(files.image, pictures)),
            captions,
            {"direction": direction, direction: subset},
            {"record": pictures[0]},
        )

"""EqBen: two similar images, from videos or graphics engines, and a caption of each.

Wang et al., "Equivariant Similarity for Vision-Language Foundation Models" (ICCV 2023),
github.com/Wangt-CN/EqBen; its small subset, read like github.com/linzhiqiu/t2v_metrics, and its
random tenth. Unverified: the files were not available, and the numbers of cases are unknown. The
format of the full set's annotation (251,048 cases, 100 GB) is not known here.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from vlc_jax.input_pipeline.benchmarks import fields, published
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

FILE, TENTH = "all_select.json", "eqben_subset_10percent_final.json"
FAMILIES = {  # subset (first folder of an image) -> family, as in the results of t2v_metrics
    "eqbenag": "eqbenag",  # Action Genome, videos
    "eqbengebc": "eqbeng",  # GEBC, videos
    "eqbenyoucook2": "eqbeny",  # YouCook2, videos
    "eqbenkubric_attr": "eqbenk",  # Kubric, a rendering engine
    "eqbenkubric_cnt": "eqbenk",
    "eqbenkubric_loc": "eqbenk",
    "eqbensd": "eqbensd",  # Stable Diffusion
}
ORIGIN = published.Origin(
    protocol="pairs",
    folder="eqben_vllm",
    files=(FILE,),
    images="eqben_vllm/images",
    source="github.com/linzhiqiu/t2v_metrics (dataset.py names the archive eqben_vllm.zip)",
    licence="none in its README; images: as in Action Genome, GEBC and YouCook2",
    overlap="Action Genome, GEBC, YouCook2",
)
SUBSET = dataclasses.replace(
    ORIGIN,
    folder="eqben_subset",
    files=(TENTH,),
    images="eqben_subset/image_subset",
    source="github.com/Wangt-CN/EqBen (its README links the 10 % subset)",
)
_IMAGES, _CAPTIONS = ("image0", "image1"), ("caption0", "caption1")


@published.reader(ORIGIN)
def eqben(files: published.Files) -> Benchmark:
    """Pairs of images with a caption each.

    group_score, the headline: all four comparisons of a case are right. Also text_score and
      image_score. Groups: subset=eqbenkubric_cnt etc., the folder of the images; family=eqbenk
      etc., as in t2v_metrics, where Kubric's three subsets are one family.
    Frames of YouCook2 are NumPy files of pixels, in OpenCV's channel order.
    """
    return files.benchmark(_cases(files), summary=published.PAIR_SCORES)


@published.reader(SUBSET)
def eqben_subset(files: published.Files) -> Benchmark:
    """A tenth of the full set, drawn at random by the authors; fields, metrics and groups as in
    `eqben`."""
    return files.benchmark(_cases(files), summary=published.PAIR_SCORES)


def _cases(files: published.Files) -> Iterator[Case]:
    (name,) = files.origin.files
    for number, row in enumerate(
        files.objects(name, *_CAPTIONS, **dict.fromkeys(_IMAGES, fields.image_name))
    ):
        paths = [files.image(row[field]) for field in _IMAGES]
        subset = row["image0"].split("/")[0]
        if subset not in FAMILIES:
            raise DataError(
                f"{files.folder / name}: case {number}: images begin with one of "
                f"{', '.join(FAMILIES)}; got {row['image0']!r:.80}"
            )
        yield Case(
            published.case_id(number, Path(row["image0"]).with_suffix("")),
            tuple(_pixels(path) if path.suffix == ".npy" else path for path in paths),
            tuple(row[field] for field in _CAPTIONS),
            {"subset": subset, "family": FAMILIES[subset]},
        )


def _pixels(path: Path) -> np.ndarray | Path:
    """RGB pixels of a NumPy file of BGR pixels; the path itself if missing: decoding raises."""
    if not path.is_file():
        return path
    try:
        # a pickle from the internet could run code
        pixels = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"{path} is no NumPy file of pixels: {error}") from error
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 3:
        raise DataError(f"{path} has no uint8 pixels (height, width, 3)")
    # BGR, as OpenCV reads images
    return np.ascontiguousarray(pixels[:, :, ::-1])

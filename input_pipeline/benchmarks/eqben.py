"""EqBen: two similar images, from videos or graphics engines, and a caption of each.

Wang et al., "Equivariant Similarity for Vision-Language Foundation Models" (ICCV 2023),
github.com/Wangt-CN/EqBen: its small subset, read like github.com/linzhiqiu/t2v_metrics, its random
tenth, and all of it, read like the authors' package eqben 0.0.1 and evaluate_eqben_locally.py.
Unverified: the files were not available. The fields of the full set are also those that the code of
github.com/mariebexte/vl-probing reads; its numbers of cases are those of the authors' script.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline.benchmarks import fields, published
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

FAMILIES = {  # subset (first folder of an image) -> family, as in the results of t2v_metrics
    "eqbenag": "eqbenag",  # Action Genome, videos
    "eqbengebc": "eqbeng",  # GEBC, videos
    "eqbenyoucook2": "eqbeny",  # YouCook2, videos
    "eqbenkubric_attr": "eqbenk",  # Kubric, a rendering engine
    "eqbenkubric_cnt": "eqbenk",
    "eqbenkubric_loc": "eqbenk",
    "eqbensd": "eqbensd",  # Stable Diffusion
}
_PAIRS = ("c0i0", "c0i1", "c1i0", "c1i1")  # caption and image of a row of the full set
_IMAGES, _CAPTIONS = ("image0", "image1"), ("caption0", "caption1")


@published.reader
def eqben(files: published.Files) -> Benchmark:
    """Pairs of images with a caption each.

    group_score, the headline: all four comparisons of a case are right. Also text_score and
      image_score. Groups: subset=eqbenkubric_cnt etc., the folder of the images; family=eqbenk
      etc., as in t2v_metrics, where Kubric's three subsets are one family.
    Frames of YouCook2 are NumPy files of pixels, in OpenCV's channel order.
    """
    return files.benchmark(_cases(files), summary=published.PAIR_SCORES)


@published.reader
def eqben_subset(files: published.Files) -> Benchmark:
    """A tenth of the full set, drawn at random by the authors; fields, metrics and groups as in
    `eqben`."""
    return files.benchmark(_cases(files), summary=published.PAIR_SCORES)


@published.reader
def eqben_full(files: published.Files, light: bool = False) -> Benchmark:
    """All 251,048 cases; metrics and groups as in `eqben`, subset by subset as in the paper.

    light: images of the authors' light version, JPEG in the place of PNG.
    count: number of cases per subset. The file has a row for each caption with each image, a
      million in all: reading them takes a gigabyte.
    """
    return files.benchmark(_whole(files, light), summary=published.PAIR_SCORES)


def _whole(files: published.Files, light: bool) -> Iterator[Case]:
    found: dict[tuple[str, int], dict[str, Any]] = {}
    kinds = {"image": fields.image_name, "private_info": fields.anything}
    for number, row in enumerate(files.objects(files.file, "caption", **kinds)):
        info, where = row["private_info"], f"{files.folder / files.file}: case {number}"
        try:
            subset, pair, index = (info[name] for name in ("dataset", "name", "sample_cnt"))
            is_known = subset in FAMILIES and pair in _PAIRS and type(index) is int
        except (TypeError, KeyError):
            is_known = False
        if not is_known:
            raise DataError(
                f"{where}: 'private_info' has dataset ({', '.join(FAMILIES)}), name "
                f"({', '.join(_PAIRS)}) and sample_cnt; got {fields.shown(info)}"
            )
        # c0i1 is caption 0 and image 1
        parts = {pair[:2]: row["caption"], pair[2:]: row["image"], pair: True}
        case = found.setdefault((subset, index), {})
        if pair in case or any(case.get(key, value) != value for key, value in parts.items()):
            raise DataError(f"{where} contradicts another row of {subset} {index}")
        case |= parts
    # by number: rows are in random order
    for (subset, index), case in sorted(found.items(), key=lambda item: (item[0][1], item[0][0])):
        if missing := [pair for pair in _PAIRS if pair not in case]:
            raise DataError(
                f"{files.folder / files.file}: {subset} {index} has no {', '.join(missing)}"
            )
        names = [case[image] for image in ("i0", "i1")]
        if light:
            names = [re.sub(r"\.png$", ".jpg", name) for name in names]
        yield Case(
            published.case_id(index, Path(names[0]).with_suffix("")),
            tuple(map(files.image, names)),
            (case["c0"], case["c1"]),
            {"subset": subset, "family": FAMILIES[subset]},
        )


def _cases(files: published.Files) -> Iterator[Case]:
    for number, row in enumerate(
        files.objects(files.file, *_CAPTIONS, **dict.fromkeys(_IMAGES, fields.image_name))
    ):
        paths = [files.image(row[field]) for field in _IMAGES]
        subset = row["image0"].split("/")[0]
        if subset not in FAMILIES:
            raise DataError(
                f"{files.folder / files.file}: case {number}: images begin with one of "
                f"{', '.join(FAMILIES)}; got {row['image0']!r:.80}"
            )
        yield Case(
            published.case_id(number, Path(row["image0"]).with_suffix("")),
            tuple(paths),
            tuple(row[field] for field in _CAPTIONS),
            {"subset": subset, "family": FAMILIES[subset]},
        )

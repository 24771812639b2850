"""VL-CheckList: an image, its caption and one with a wrong object, attribute or relation.

Zhao et al., "VL-CheckList: Evaluating Pre-trained Vision-Language Models with Objects, Attributes
and Relations" (EMNLP 2022), the annotations of github.com/om-ai-lab/VL-CheckList (data/) by their
ITC task: the whole image, strict comparison. Images of HAKE and SWiG are partly gone from the net;
the authors' code leaves out cases without an image and says nothing, here `sources` does.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from vlc_jax.input_pipeline.benchmarks.published_files import (
    Origin,
    PublishedFiles,
    case_id,
    check_options,
)
from vlc_jax.input_pipeline.case import Average, Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

AXES = ("Object", "Attribute", "Relation")
SOURCES = {"vg": "vg", "vaw": "vg", "hake": "hake", "swig": "swig"}  # source -> folder of images
PLACES = {"Location": ("center", "mid", "margin"), "Size": ("large", "medium", "small")}
ORIGIN = Origin(
    protocol="choice",
    folder="vl_checklist",
    files=(
        "Object/*/*/*.json",
        "Object/*/*/*/*.json",
        "Attribute/*/*.json",
        "Relation/*.json",
        "Relation/*/*.json",
    ),
    images=".",
    source="github.com/om-ai-lab/VL-CheckList (data/; folders vg, hake and swig as DATASETS.md)",
    licence="none given for the annotations; the paper is CC BY 4.0",
    cases={
        "Attribute/action/vg": 1_892,
        "Attribute/color/vg": 11_569,
        "Attribute/material/vg": 2_470,
        "Attribute/size/vg": 2_695,
        "Attribute/state/vg": 941,
        "Relation/action/vg": 12_733,
        "Relation/spatial/vg": 30_650,
    },
    overlap="Visual Genome, of which half are images of COCO; HAKE, which has COCO's, too",
)


class Corpus(NamedTuple):
    """One file of the set: the label of its subset, what it asks, whose images, and its name.

    type: axis and what of it, such as object_location_center or attribute_color.
    """

    subset: str
    axis: str
    type: str
    source: str
    file: str


def vl_checklist(
    root: str | Path = "",
    count: int | None = None,
    folder: str | Path | None = None,
    images: str | Path | None = None,
    axes: tuple[str, ...] = AXES,
    sources: tuple[str, ...] = tuple(SOURCES),
) -> Benchmark:
    """Cases of two captions, "brown knob" and "teal knob", in up to 56 subsets.

    accuracy_macro, the headline: the mean over axes of the means over their types.
    accuracy_object, accuracy_attribute, accuracy_relation: the mean over types of an axis.
    accuracy_object_location_center, accuracy_attribute_color and the like: of a type the mean over
      sources (vg, vaw, hake, swig) of the mean over files, as the authors' charts have it.
    accuracy: over cases.
    count: of cases of each file. 1,000 is what the authors' ITC task evaluates: its MAX_NUM of
      2,000 counts both captions of a case, and keeps the first ones. Tables of others (vl_compo)
      have these numbers.
    axes, sources: parts of the set.

    In 108 of the cases of Visual Genome both captions are the same: no model has them right.
    """
    files = PublishedFiles(ORIGIN, root, folder, images)
    check_options("axes", axes, AXES)
    check_options("sources", sources, SOURCES)
    chosen = [each for each in corpora() if each.axis in axes and each.source in sources]
    if not chosen:
        raise ValueError(f"VL-CheckList has no {list(axes)} of the sources {list(sources)}")
    averages = {"macro": Average(("axis", "type", "source", "subset"))}
    averages |= {axis.lower(): Average((axis.lower(), "source", "subset")) for axis in axes}
    averages |= {corpus.type: Average((corpus.type, "subset")) for corpus in chosen}
    cases = (case for corpus in chosen for case in _cases(files, corpus))
    summary = ("accuracy_macro", *(f"accuracy_{axis.lower()}" for axis in axes), "accuracy")
    return files.benchmark("vl_checklist", cases, count, averages, summary=summary)


def corpora() -> Iterator[Corpus]:
    """All files of the set, as its folder corpus/ lists them."""
    for kind, places in PLACES.items():
        folder, low = f"Object/{kind}", kind.lower()
        for place in places:
            names = {"hake": f"hake_{low}/hake_obj_{place}"}
            for role in ("agent", "destination", "item", "tool"):
                names[f"swig_{role}"] = f"swig_{low}/swig_{role}/swig_{role}_{place}"
            for role in ("obj", "subj"):
                names[f"vg_{role}"] = f"vg_{low}/vg_{role}_{place}"
            for name, file in names.items():
                source = name.split("_")[0]
                label = f"{folder}/{place}/{name}"
                question = f"object_{low}_{place}"
                yield Corpus(label, "Object", question, source, f"{folder}/{file}.json")
    for kind in ("action", "color", "material", "size", "state"):
        for source in ("vg", "vaw"):
            label, file = f"Attribute/{kind}/{source}", f"Attribute/{source}/{kind}.json"
            yield Corpus(label, "Attribute", f"attribute_{kind}", source, file)
    for kind, source, file in (
        ("action", "vg", "vg/action"),
        ("action", "hake", "hake_action"),
        ("action", "swig", "swig_action"),
        ("spatial", "vg", "vg/spatial"),
    ):
        label = f"Relation/{kind}/{source}"
        yield Corpus(label, "Relation", f"relation_{kind}", source, f"Relation/{file}.json")


def _cases(files: PublishedFiles, corpus: Corpus) -> Iterator[Case]:
    rows = files.json(corpus.file)
    if not isinstance(rows, list):
        raise DataError(f"{files.folder / corpus.file} is no list of cases; {ORIGIN.how_to_get}")
    group = {
        "subset": corpus.subset,
        "axis": corpus.axis,
        "type": corpus.type,
        "source": corpus.source,
        # For the means of one axis and of one type.
        corpus.axis.lower(): corpus.type,
        corpus.type: corpus.source,
    }
    prefix = corpus.subset.replace("/", "_")
    for number, row in enumerate(rows):
        image, captions = _read(files, corpus.file, number, row)
        name = f"{SOURCES[corpus.source]}/{image}"
        case = f"{prefix}_{case_id(number, image)}"
        yield Case(case, (files.image(name),), captions, group, {"record": name})


def _read(
    files: PublishedFiles, file: str, number: int, row: object
) -> tuple[str, tuple[str, str]]:
    """Image and captions of [image, {"POS": [text], "NEG": [text]}]; of several texts the first."""
    match row:
        case [str(image), {"POS": [str(correct), *_], "NEG": [str(wrong), *_]}]:
            return image, (correct, wrong)
    raise DataError(
        f"{files.folder / file}: case {number} is not [image, {{POS: [text], NEG: [text]}}]; "
        f"got {row!r:.80}"
    )


READERS = {"vl_checklist": (vl_checklist, ORIGIN)}

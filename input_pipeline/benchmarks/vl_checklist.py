"""VL-CheckList: an image, its caption, and a caption with a wrong object, attribute or relation.

Zhao et al., "VL-CheckList: Evaluating Pre-trained Vision-Language Models with Objects, Attributes
and Relations" (EMNLP 2022): the annotations of github.com/om-ai-lab/VL-CheckList (data/) in the ITC
task: whole image, strict comparison. Some images of HAKE and SWiG are no longer online: the
authors' code silently drops cases without an image; here the option `sources` drops whole sources.
"""

from collections.abc import Iterator
from typing import NamedTuple

from vlc_jax.input_pipeline.benchmarks import published
from vlc_jax.input_pipeline.case import Average, Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

AXES = ("Object", "Attribute", "Relation")
SOURCES = {"vg": "vg", "vaw": "vg", "hake": "hake", "swig": "swig"}  # source -> folder of images
PLACES = {"Location": ("center", "mid", "margin"), "Size": ("large", "medium", "small")}


class Corpus(NamedTuple):
    """One annotation file of the set.

    subset: label of the file. axis: of AXES. type: axis and its kind, such as
    object_location_center or attribute_color. source: of SOURCES. file: name of the file.
    """

    subset: str
    axis: str
    type: str
    source: str
    file: str


@published.reader
def vl_checklist(
    files: published.Files, axes: tuple[str, ...] = AXES, sources: tuple[str, ...] = tuple(SOURCES)
) -> Benchmark:
    """Cases of two captions, "brown knob" and "teal knob", in up to 56 subsets.

    accuracy_macro, the headline: mean over axes of the means over their types.
    accuracy_object, accuracy_attribute, accuracy_relation: mean over the types of an axis.
    accuracy_object_location_center, accuracy_attribute_color etc.: of a type, mean over sources
      (vg, vaw, hake, swig) of the means over files, as in the authors' charts.
    accuracy: over cases.
    count: number of cases per file. The authors' ITC task evaluates the first 1,000: its MAX_NUM of
      2,000 counts both captions of a case. Published tables (vl_compo) do the same.
    axes, sources: parts of the set.

    108 cases of Visual Genome have two equal captions, which no model can solve.
    """
    published.check_options("axes", axes, AXES)
    published.check_options("sources", sources, SOURCES)
    chosen = [each for each in corpora() if each.axis in axes and each.source in sources]
    if not chosen:
        raise ValueError(f"VL-CheckList has no {list(axes)} of the sources {list(sources)}")
    averages = {"macro": Average(("axis", "type", "source", "subset"))}
    averages |= {axis.lower(): Average((axis.lower(), "source", "subset")) for axis in axes}
    averages |= {corpus.type: Average((corpus.type, "subset")) for corpus in chosen}
    cases = (case for corpus in chosen for case in _cases(files, corpus))
    summary = ("accuracy_macro", *[f"accuracy_{axis.lower()}" for axis in axes], "accuracy")
    return files.benchmark(cases, averages, summary=summary)


def corpora() -> Iterator[Corpus]:
    """Yields all files of the set, as listed in its folder corpus/."""
    for kind, values in PLACES.items():
        folder, low = f"Object/{kind}", kind.lower()
        for value in values:
            names = {"hake": f"hake_{low}/hake_obj_{value}"}
            # swig has a folder per role, vg and hake have none
            for role in ("agent", "destination", "item", "tool"):
                names[f"swig_{role}"] = f"swig_{low}/swig_{role}/swig_{role}_{value}"
            for role in ("obj", "subj"):
                names[f"vg_{role}"] = f"vg_{low}/vg_{role}_{value}"
            for name, file in names.items():
                source = name.split("_")[0]
                label = f"{folder}/{value}/{name}"
                question = f"object_{low}_{value}"
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


def _cases(files: published.Files, corpus: Corpus) -> Iterator[Case]:
    rows = files.json(corpus.file)
    if not isinstance(rows, list):
        raise DataError(
            f"{files.folder / corpus.file} is no list of cases; {files.origin.how_to_get}"
        )
    group = {
        "subset": corpus.subset,
        "axis": corpus.axis,
        "type": corpus.type,
        "source": corpus.source,
        # Kinds of group for the means of a single axis and a single type.
        corpus.axis.lower(): corpus.type,
        corpus.type: corpus.source,
    }
    prefix = corpus.subset.replace("/", "_")
    for number, row in enumerate(rows):
        image, captions = _read(files, corpus.file, number, row)
        path = f"{SOURCES[corpus.source]}/{image}"
        yield files.case(number, path, captions, group, name=image, prefix=prefix)


def _read(
    files: published.Files, file: str, number: int, row: object
) -> tuple[str, tuple[str, str]]:
    """Image and captions of [image, {"POS": [text], "NEG": [text]}]; the first text each."""
    match row:
        case [str(image), {"POS": [str(correct), *_], "NEG": [str(wrong), *_]}]:
            return image, (correct, wrong)
    raise DataError(
        f"{files.folder / file}: case {number} is not [image, {{POS: [text], NEG: [text]}}]; "
        f"got {row!r:.80}"
    )

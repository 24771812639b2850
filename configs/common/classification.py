"""Data sets of zero-shot classification, and linear probes of them, under CLIP_benchmark's names.

Class names and prompts are read from the folder of a set, or else from CLIP_benchmark's files.
"""

import importlib.util
import os
from types import SimpleNamespace
from typing import Any, NamedTuple

from vlc_jax import errors

ARGUMENTS = {
    "sets": "",
    "probe": "",
    "root": "",
    "names": "",
    "ids": "",
    "split": "test",
    "count": 0,
}
FILES = ("en_classnames.json", "en_zeroshot_classification_templates.json")
_OWN = ("classnames.txt", "zeroshot_classification_templates.txt")  # files of a set


class Set(NamedTuple):
    """A data set.

    repository: its folder is wds_REPOSITORY in Hugging Face's clip-benchmark.   names: entry of
    FILES[0]; "": the set's own names.   templates: entry of FILES[1]; "": called like the set.
    metric: the headline. Caltech-101, Pets, Flowers and Aircraft have the mean recall of their
    classes (Radford et al. 2021, table 9).   reader: a benchmark.
    """

    repository: str
    names: str = ""
    templates: str = ""
    metric: str = "accuracy"
    reader: str = "zeroshot"


MEAN = "mean_per_class_recall"
_IMAGENET = "imagenet1k"
SETS: dict[str, Set] = {
    _IMAGENET: Set(_IMAGENET, _IMAGENET),
    "imagenetv2": Set("imagenetv2", _IMAGENET, _IMAGENET),
    "imagenet_sketch": Set("imagenet_sketch", _IMAGENET, _IMAGENET),
    "imagenet_a": Set("imagenet-a", _IMAGENET, _IMAGENET),
    "imagenet_r": Set("imagenet-r", _IMAGENET, _IMAGENET),
    "objectnet": Set("objectnet", templates=_IMAGENET),
    "caltech101": Set("vtab-caltech101", "caltech101_vtab", metric=MEAN),
    "cars": Set("cars"),
    "cifar10": Set("vtab-cifar10"),
    "cifar100": Set("vtab-cifar100"),
    "clevr_closest_object_distance": Set(
        "vtab-clevr_closest_object_distance", "clevr_closest_object_distance"
    ),
    "clevr_count_all": Set("vtab-clevr_count_all", "clevr_count_all"),
    "country211": Set("country211", "country211"),
    "diabetic_retinopathy": Set("vtab-diabetic_retinopathy", "diabetic_retinopathy"),
    "dmlab": Set("vtab-dmlab", "dmlab"),
    "dsprites_label_orientation": Set("vtab-dsprites_label_orientation"),
    "dsprites_label_x_position": Set("vtab-dsprites_label_x_position"),
    "dsprites_label_y_position": Set("vtab-dsprites_label_y_position"),
    "dtd": Set("vtab-dtd"),
    "eurosat": Set("vtab-eurosat", "eurosat"),
    "fer2013": Set("fer2013", "fer2013"),
    "fgvc_aircraft": Set("fgvc_aircraft", metric=MEAN),
    "flowers": Set("vtab-flowers", "flowers", metric=MEAN),
    "food101": Set("food101"),
    "gtsrb": Set("gtsrb", "gtsrb"),
    "kitti_closest_vehicle_distance": Set(
        "vtab-kitti_closest_vehicle_distance", "kitti_closest_vehicle_distance"
    ),
    "mnist": Set("mnist", "mnist"),
    "pcam": Set("vtab-pcam", "pcam"),
    "pets": Set("vtab-pets", "pets", metric=MEAN),
    "renderedsst2": Set("renderedsst2"),
    "resisc45": Set("vtab-resisc45"),
    "smallnorb_label_azimuth": Set("vtab-smallnorb_label_azimuth"),
    "smallnorb_label_elevation": Set("vtab-smallnorb_label_elevation"),
    "stl10": Set("stl10"),
    "sun397": Set("sun397"),
    "svhn": Set("vtab-svhn", "svhn"),
    "voc2007": Set("voc2007"),  # its objects, cropped
    "voc2007_multilabel": Set("voc2007_multilabel", reader="multilabel"),
}
# CLIP_benchmark's collection "vtab"
VTAB = (
    "caltech101", "cifar100", "clevr_count_all", "clevr_closest_object_distance",
    "diabetic_retinopathy", "dmlab", "dsprites_label_orientation", "dsprites_label_x_position",
    "dtd", "eurosat", "kitti_closest_vehicle_distance", "flowers", "pets", "pcam", "resisc45",
    "smallnorb_label_azimuth", "smallnorb_label_elevation", "sun397", "svhn",
)  # fmt: skip
_SHIFTS = ("imagenetv2", "imagenet_sketch", "imagenet_a", "imagenet_r", "objectnet")
# "vtab" of its webdatasets.txt
_VTAB_20 = (*(set for set in VTAB if set != "sun397"), "cifar10", "dsprites_label_y_position")
GROUPS = {"imagenet": (_IMAGENET, *_SHIFTS), "vtab": VTAB, "vtab_20": _VTAB_20, "all": tuple(SETS)}
_PART = ("imagenet_a", "imagenet_r")  # sets of a part of their names


def evals(args: SimpleNamespace) -> dict[str, dict[str, Any]]:
    """Entries of config.evals: NAME for args.sets, NAME_probe for args.probe.

    Raises ValueError for an unknown set, and without root.
    """
    chosen, probes = names(args.sets), names(args.probe)
    if (chosen or probes) and not args.root:
        raise ValueError("root=... is missing: the folder of the folders of sets and probe")
    entries = {name: _zero_shot(name, args) for name in chosen}
    for name in probes:
        entries[f"{name}_probe"] = {"reader": "linear_probe"} | _data(name, args)
    return entries


def names(text: str) -> list[str]:
    """Names of sets, joined by + with those of GROUPS, without repetition."""
    sets: list[str] = []
    for name in filter(None, text.split("+")):
        errors.known("set", name, (*GROUPS, *SETS), ValueError)
        sets += GROUPS.get(name, (name,))
    return list(dict.fromkeys(sets))


def _data(name: str, args: SimpleNamespace) -> dict[str, Any]:
    """Source and size of an evaluation of a set."""
    folders = [os.path.join(args.root, each) for each in (name, f"wds_{SETS[name].repository}")]
    path = next((folder for folder in folders if os.path.isdir(folder)), folders[0])
    data = {"source": "labelled", "path": path, "split": args.split}
    return data | ({"count": args.count} if args.count else {})


def _zero_shot(name: str, args: SimpleNamespace) -> dict[str, Any]:
    row, options = SETS[name], _data(name, args)
    options["reader"] = row.reader
    if row.metric != "accuracy":
        options["metric"] = row.metric
    has_names, has_templates = (os.path.isfile(os.path.join(options["path"], f)) for f in _OWN)
    folder = args.names or _installed()
    if folder and row.names and not has_names and (name not in _PART or args.ids):
        options["class_names"] = f"{os.path.join(folder, FILES[0])}:{row.names}"
        if name in _PART:
            options["class_ids"] = args.ids
    if folder and not has_templates:
        options["templates"] = f"{os.path.join(folder, FILES[1])}:{row.templates or name}"
    return options


def _installed() -> str:
    """The folder of an installed clip_benchmark's files; "" without it."""
    spec = importlib.util.find_spec("clip_benchmark")
    if spec is None or not spec.submodule_search_locations:
        return ""
    return os.path.join(spec.submodule_search_locations[0], "datasets")

"""VL-CheckList: subsets, means over axes, types, sources and files, wrong rows, real counts."""

import collections

import numpy as np
import pytest

from vlc_jax.evaluators import groups
from vlc_jax.input_pipeline.benchmarks import vl_checklist


def test_the_files_are_those_of_the_authors_folder():
    files = {corpus.subset: corpus.file for corpus in vl_checklist.corpora()}
    assert len(files) == len(set(files.values())) == 56
    assert files["Attribute/color/vaw"] == "Attribute/vaw/color.json"
    assert files["Relation/action/swig"] == "Relation/swig_action.json"
    expected = "Object/Size/swig_size/swig_agent/swig_agent_small.json"
    assert files["Object/Size/small/swig_agent"] == expected
    assert (
        files["Object/Location/center/hake"] == "Object/Location/hake_location/hake_obj_center.json"
    )


def test_images_of_vaw_are_those_of_visual_genome(root):
    cases = vl_checklist.vl_checklist(root).cases
    places = {case.group["source"]: case.meta["record"].split("/")[0] for case in cases}
    assert places == {"vg": "vg", "vaw": "vg", "hake": "hake", "swig": "swig"}


def test_the_headline_is_the_mean_over_axes_types_and_sources(root):
    benchmark = vl_checklist.vl_checklist(root)
    # Right in one file alone: of 4 files of swig, one of 3 sources, of 6 types, of 3 axes.
    right = np.array([c.group["subset"] == "Object/Size/small/swig_tool" for c in benchmark.cases])
    half, none = np.full(len(right), 0.5), np.zeros(len(right), bool)
    labels = [case.group for case in benchmark.cases]
    metrics = groups.metrics("accuracy", groups.Decisions(labels, right, half, none), benchmark)
    assert metrics["accuracy_macro"].value == pytest.approx(1 / 4 / 3 / 6 / 3)
    assert metrics["accuracy_object"].value == pytest.approx(1 / 4 / 3 / 6)
    assert metrics["accuracy_object_size_small"].value == pytest.approx(1 / 4 / 3)
    assert metrics["accuracy_object_size_large"].value == 0
    assert metrics["accuracy_relation"].value == 0


def test_parts_of_the_set_need_no_files_of_the_others(root, tmp_path):
    (tmp_path / "vl_checklist").mkdir()
    (tmp_path / "vl_checklist" / "Relation").symlink_to(root / "vl_checklist" / "Relation")
    part = vl_checklist.vl_checklist(tmp_path, axes=("Relation",), sources=("vg",))
    assert {c.group["subset"] for c in part.cases} == {"Relation/action/vg", "Relation/spatial/vg"}
    assert part.summary == ("accuracy_macro", "accuracy_relation", "accuracy")
    with pytest.raises(ValueError, match="axes are some of"):
        vl_checklist.vl_checklist(root, axes=("relation",))
    with pytest.raises(ValueError, match="has no"):
        vl_checklist.vl_checklist(root, axes=("Object",), sources=("vaw",))


def test_the_real_files_have_the_published_counts(real_data, tmp_path):
    real = real_data / "vl_checklist_vg"  # TYPE.json each
    for corpus in vl_checklist.corpora():
        if corpus.source == "vg" and corpus.axis != "Object":
            link = tmp_path / "vl_checklist" / corpus.file
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(real / f"{corpus.type}.json")
    options = {"axes": ("Attribute", "Relation"), "sources": ("vg",)}
    benchmark = vl_checklist.vl_checklist(tmp_path, **options)
    assert benchmark.notes == ()
    assert len(benchmark.cases) == 62_950
    assert sum(case.captions[0] == case.captions[1] for case in benchmark.cases) == 108


def test_the_first_cases_of_a_file_are_those_of_the_itc_task(root):
    numbers = collections.Counter(
        case.group["subset"] for case in vl_checklist.vl_checklist(root, count=1).cases
    )
    assert len(numbers) == 56
    assert set(numbers.values()) == {1}

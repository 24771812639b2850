"""REPLACE and SWAP: two files joined by position, known defects, positives that are rebuilt."""

import json
import shutil

import pytest

from tests.support.sets import hard_positives as files
from tests.support.sets.random_scorer import random_scorer
from vlc_jax import evaluators
from vlc_jax.input_pipeline.benchmarks import hard_positives
from vlc_jax.input_pipeline.record import Crop, DataError

SWAPPED = "hard_positives/swapped_data"


def rewrite(path, change):
    rows = json.loads(path.read_text())
    change(rows)
    path.write_text(json.dumps(rows))


def test_positives_come_from_the_same_place_of_the_other_file(root):
    cases = hard_positives.replace(root).cases
    found = [(*case.captions, case.meta["positive"]) for case in cases]
    assert found == [case[1:] for subset in files.REPLACE.values() for case in subset]
    assert cases[0].images == (root / "vg" / "VG_100K" / "0.jpg",)


def test_the_headline_is_the_unweighted_mean_of_the_subsets(root):
    benchmark = hard_positives.replace(root)
    metrics = evaluators.evaluate("triplet", benchmark, random_scorer()).metrics
    for name in benchmark.summary:
        metric = name.removesuffix("_macro")
        parts = [metrics[f"{metric}/subset={subset}"].value for subset in files.REPLACE]
        assert metrics[name].value == pytest.approx(sum(parts) / 2)


def test_files_that_do_not_belong_together_are_refused(root):
    path = root / SWAPPED / "vl_checklist_relations.json"
    rewrite(path, lambda rows: rows[1].update(false_caption="hand on cup"))
    with pytest.raises(DataError, match=r"case 1 has false_caption.*vl_checklist_relations"):
        hard_positives.replace(root)
    rewrite(path, lambda rows: rows.pop())
    with pytest.raises(DataError, match=r"2 cases and .*vl_checklist_relations.json 1"):
        hard_positives.replace(root)


def test_negatives_equal_to_a_caption_are_counted_in_a_note(root):
    notes = hard_positives.replace(root).notes
    assert "2 cases whose negative is equal to a correct caption cannot be answered" in notes


def test_swap_takes_the_box_and_replace_the_whole_image(root):
    assert hard_positives.swap(root).cases[0].images == (
        Crop(root / "aro" / "images" / "0.jpg", (1, 2, 21, 27)),
    )


@pytest.mark.parametrize("place", ["hard_positives/data", "aro"])
def test_swaps_without_the_authors_file_are_rebuilt_with_a_note(root, place):
    published = hard_positives.swap(root)
    shutil.rmtree(root / SWAPPED)
    if place == "aro":
        name = "visual_genome_attribution.json"
        shutil.move(root / "hard_positives/data" / name, root / "aro" / name)
    rebuilt = hard_positives.swap(root)
    assert rebuilt.cases == published.cases
    assert any("rebuilt" in note for note in rebuilt.notes)
    assert not any("rebuilt" in note for note in published.notes)


def test_a_caption_that_cannot_be_swapped_is_named(root):
    shutil.rmtree(root / SWAPPED)
    path = root / "hard_positives/data/visual_genome_attribution.json"
    rewrite(path, lambda rows: rows[1].update(true_caption="the red hat"))
    with pytest.raises(DataError, match=r"attribution.json: case 1 .*'the red hat'"):
        hard_positives.swap(root)


def test_all_published_cases_are_there_with_their_16_defects(real_data):
    benchmark = hard_positives.replace(real_data)
    assert len(benchmark.cases) == 10_575 + 16_868
    assert benchmark.notes == (
        "16 cases whose negative is equal to a correct caption cannot be answered",
    )
    assert {case.images[0].parent.name for case in benchmark.cases} == {"VG_100K", "VG_100K_2"}

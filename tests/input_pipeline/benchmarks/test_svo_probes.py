"""SVO-Probes: the right image first, kinds of negatives, images that are no longer to be had."""

import pytest

from tests.support.sets import svo_probes as files
from tests.support.sets.files import write_table
from tests.support.sets.random_scorer import random_scorer
from vlc_jax import evaluators
from vlc_jax.input_pipeline.benchmarks.svo_probes import svo_probes
from vlc_jax.input_pipeline.record import DataError


def rewrite(root, *rows):
    write_table(root / "svo_probes" / "svo_probes.csv", list(rows))


def test_the_right_image_is_first_and_groups_say_what_is_wrong(root):
    benchmark = svo_probes(root)
    found = [(case.group, [path.name for path in case.images]) for case in benchmark.cases]
    assert found == [
        ("subj_neg", ["0.jpg", "1.jpg"]),
        ("verb_neg", ["0.jpg", "2.jpg"]),
        ("obj_neg", ["3.jpg", "2.jpg"]),
    ]
    assert benchmark.cases[2].captions == ("A cup, red, stands on a chair.",)
    assert benchmark.notes == ()
    metrics = evaluators.evaluate("choice", benchmark, random_scorer()).metrics
    assert metrics["accuracy"].chance == 1 / 2
    assert all(metrics[f"accuracy/{kind}"].count == 1 for kind in ("subj_neg", "verb_neg"))


def test_cases_with_an_absent_image_are_left_out_with_a_note(root):
    whole = svo_probes(root)
    (root / "svo_probes" / "images" / "2.jpg").unlink()
    for fewer in (svo_probes(root), svo_probes(root, count=1)):
        assert [case.id for case in fewer.cases] == [whole.cases[0].id]
        assert fewer.version != whole.version
        (note,) = fewer.notes
        assert note.startswith("2 of 3 cases are left out: their images are absent")


def test_a_set_without_any_image_is_refused(root):
    (root / "svo_probes" / "images").rename(root / "elsewhere")
    with pytest.raises(DataError, match=r"none of 3 cases has both images in .*images; .*pos_url"):
        svo_probes(root)
    assert len(svo_probes(root, images="elsewhere").cases) == 3


def test_cases_without_exactly_one_negative_are_left_out(root):
    several = files.row("A cup stands.", 0, 1, subj_neg=True, obj_neg=True)
    rewrite(root, several, *files.ROWS, files.row("A cup stands.", 0, 1))
    benchmark = svo_probes(root)
    assert len(benchmark.cases) == 3
    assert benchmark.notes == ("2 cases without exactly one negative are left out",)


def test_a_header_longer_than_a_field_can_be_is_named(root):
    path = root / "svo_probes" / "svo_probes.csv"
    path.write_text(f'"{"a" * 200_000}"\n' + path.read_text())
    with pytest.raises(DataError, match=r"line \d of .*svo_probes\.csv: field larger"):
        svo_probes(root)

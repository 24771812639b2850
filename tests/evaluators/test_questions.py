"""Benchmarks with questions: of the case itself, of spatial captions, or an error."""

import dataclasses

import pytest

from vlc_jax.evaluators import questions
from vlc_jax.input_pipeline.benchmarks import READERS, Benchmark, Case
from vlc_jax.input_pipeline.record import DataError


def test_both_images_of_a_case_come_with_its_question():
    benchmark = READERS["scenes_whatsup"](count=3)
    asked = questions.ask(benchmark)
    assert asked.version != benchmark.version
    for case, before in zip(asked.cases, benchmark.cases, strict=True):
        assert [image.question for image in case.images] == 2 * [case.meta["question"]]
        for image, shown in zip(case.images, before.images, strict=True):
            assert image.image is shown
        assert dataclasses.replace(case, images=before.images) == before


def test_spatial_captions_have_the_questions_of_the_paper():
    captions = ("A mug on a table", "A mug under a table")
    case = Case("0", (b"",), captions, {"subset": "on_under"})
    (asked,) = questions.ask(Benchmark("whatsup_a_two_way", (case,), "1")).cases
    assert asked.images[0].question == (
        "Is the mug at the bottom of the table or at the top of the table?"
    )


def test_cases_that_the_papers_do_not_ask_about_are_left_out_and_counted():
    top = Case("0", (b"",), ("A photo of a lamp on top of a sofa",) * 2, {"subset": "top_bottom"})
    one = Case("1", (b"",), ("A photo of a dog on the top", "x"), {"subset": "top_bottom"})
    asked = questions.ask(Benchmark("gqa_spatial_two", (top, one), "1", notes=("a note",)))
    assert [case.id for case in asked.cases] == ["1"]
    assert asked.notes[0] == "a note"
    assert asked.notes[1].startswith("1 cases of two objects on top of one another")


@pytest.mark.parametrize("group", [None, "relation", {"subset": "swap_obj"}])
def test_a_case_without_a_question_is_an_error(group):
    case = Case("7", (b"",), ("A mug on a table", "A table on a mug"), group)
    with pytest.raises(DataError, match="case 7 comes without a question"):
        questions.ask(Benchmark("sugarcrepe", (case,), "1"))

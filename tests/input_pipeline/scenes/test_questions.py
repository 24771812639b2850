"""Questions of captions: they name what is asked and nothing of the answer."""

import pytest

from vlc_jax.input_pipeline.benchmarks import READERS, scene_cases
from vlc_jax.input_pipeline.scenes import grammar, questions
from vlc_jax.input_pipeline.scenes import world as worlds
from vlc_jax.input_pipeline.sources.scene_records import ScenesSource

MINI = worlds.named("scenes-mini")
QUESTIONS = {
    "a big circle left of a blue square": "is the big circle left of or right of the blue square",
    "a moon to the right of a red circle": "is the moon left of or right of the red circle",
    "a star beneath a moon": "is the moon above or below the star",
    "a red circle and a navy square": "is the circle blue or red and the square blue or red",
    "a red circle and a square": questions.ANY,
    "a red circle and a crimson square": questions.ANY,
    "a red circle and a blue square and a pink moon": questions.ANY,
    "a red circle and no star": questions.ANY,
    "a red circle on the left": questions.ANY,
}


@pytest.mark.parametrize("caption", QUESTIONS)
def test_a_caption_has_its_question(caption):
    assert questions.question(grammar.parse(caption, MINI)) == QUESTIONS[caption]


@pytest.mark.parametrize("name", sorted(scene_cases.READERS))
def test_all_options_of_a_case_answer_its_question(name):
    for case in READERS[name](count=60).cases:
        asked = case.meta["question"]
        texts = [*case.captions, *filter(None, [case.meta.get("positive")])]
        parsed = [grammar.parse(text, MINI) for text in texts]
        found = {caption and questions.question(caption) for caption in parsed}
        assert asked == questions.ANY or found == {asked}, case


@pytest.mark.parametrize(
    "name", ["scenes_attribute_swap", "scenes_relation_swap", "scenes_whatsup", "scenes_swap"]
)
def test_swaps_are_asked_about_what_is_exchanged(name):
    cases = READERS[name](count=60).cases
    assert all(case.meta["question"] != questions.ANY for case in cases)


def test_an_image_and_its_hard_image_have_the_same_question():
    shares = (("relation", 0.5), ("attribute", 0.5))
    source = ScenesSource(captions=1, hard_images=shares, caption_options={"prefixes": ("",)})
    for index in range(50):
        record = source[index]
        other = source.find(record.hard_images[0])
        assert record.questions == other.questions
        assert record.captions != other.captions
    several = ScenesSource(captions=3)[0]
    parsed = [grammar.parse(caption, MINI) for caption in several.captions]
    assert several.questions == [questions.question(caption) for caption in parsed]

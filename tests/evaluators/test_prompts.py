"""Prompts: golden strings of all templates and of all questions; the swap is a matter of seed."""

import dataclasses

import pytest

from vlc_jax.errors import UsageError
from vlc_jax.evaluators import prompts
from vlc_jax.input_pipeline.case import Case
from vlc_jax.input_pipeline.record import DataError

SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives "
    "helpful, detailed, and polite answers to the user's questions."
)
PROMPTS = {
    "instructblip": "<image>Q?",
    "otter": "<image>User: Q? GPT:<answer>",
    "open_flamingo": "<image>Question:Q? Short answer:",
    "llava_hf": "USER: <image>\nQ? ASSISTANT:",
    "llava_v1": f"{SYSTEM} USER: <image>\nQ? ASSISTANT: ",
    "llama_3_v": (
        f"<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n{SYSTEM}<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\n<image>\nQ?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
    "phi_3_v": (
        "<|system|>\nYou are a helpful AI assistant.<|end|>\n<|user|>\n<image>\nQ?<|end|>\n"
        "<|assistant|>\n"
    ),
    "paligemma": "<image><bos>Q?\n",
    "gemma_3": (
        "<bos><start_of_turn>user\n\n\n<start_of_image><image><end_of_image>\n\nQ?<end_of_turn>\n"
        "<start_of_turn>model\n"
    ),
}
# (correct caption, subset) -> question to generate an answer to, question of VLM2Vec
QUESTIONS = {
    ("A beer bottle to the left of a armchair", "left_right"): (
        "Is the beer bottle to the left of or to the right of the armchair? Answer left or right.",
        "Is the beer bottle to the left of or to the right of the armchair?",
    ),
    ("A mug on a table", "on_under"): (
        "Is the mug on or under the table? Choose from the two options.",
        "Is the mug at the bottom of the table or at the top of the table?",
    ),
    ("A cup in front of a bowl", "front_behind"): (
        "Is the cup in front of or behind the bowl? Answer front or behind.",
        "Is the cup in the back of the bowl or in the front of the bowl?",
    ),
    ("A photo of a dog on the right", "left_right"): (
        "Is the dog on the left or on the right? Give a short answer.",
        "Is the dog on the left or on the right?",
    ),
    ("A photo of an umbrella on the top", "top_bottom"): (
        "Is the umbrella on the top or on the bottom? Give a short answer.",
        "Is the umbrella on the top or on the bottom?",
    ),
    ("A photo of a dog above a cat", "above_below"): (
        "Is the dog above a cat or below a cat? Give a short answer.",
        "Is the dog above a cat or below a cat?",
    ),
    ("A photo of a man to the right of a car", "left_right"): (
        "Is the man to the left of a car or to the right of a car? Give a short answer.",
        "Is the man to the left of a car or to the right of a car?",
    ),
    ("A photo of a man behind a car", "front_behind"): (
        "Is the man in front of a car or behind a car? Give a short answer.",
        "Is the man in front of a car or behind a car?",
    ),
    # GQA, two objects
    ("A photo of a dog to the behind of a chair", "front_behind"): (
        "Is the dog to the front of a chair or to the behind of a chair? Give a short answer.",
        "Is the dog to the front of a chair or to the behind of a chair?",
    ),
    ("A photo of a red cup to the front of an apple.", "front_behind"): (
        "Is the red cup to the front of a apple or to the behind of a apple? Give a short answer.",
        "Is the red cup to the front of a apple or to the behind of a apple?",
    ),
    ("A photo of a lamp to the top of a table", "top_bottom"): (
        "Is the lamp to the top of a table or to the bottom of a table? Give a short answer.",
        "Is the lamp to the top of a table or to the bottom of a table?",
    ),
    ("A photo of a lamp to the left of a table", "left_right"): (
        "Is the lamp to the left of a table or to the right of a table? Give a short answer.",
        "Is the lamp to the left of a table or to the right of a table?",
    ),
}


def case(caption, subset, captions=2, name="0"):
    others = tuple(f"other {k}" for k in range(captions - 1))
    return Case(name, (), (caption, *others), {"subset": subset})


def unswapped():
    return next(str(k) for k in range(99) if not prompts.is_swapped(str(k), seed=0))


@pytest.mark.parametrize("name", PROMPTS)
def test_a_template_is_the_published_one_letter_by_letter(name):
    assert prompts.TEMPLATES[name].text.replace("{question}", "Q?") == PROMPTS[name]
    assert prompts.TEMPLATES.keys() == PROMPTS.keys()


@pytest.mark.parametrize(("caption", "subset"), QUESTIONS)
def test_a_question_is_that_of_the_papers_letter_by_letter(caption, subset):
    example = case(caption, subset, name=unswapped())
    styles = tuple(prompts.question_of_case(example, style) for style in prompts.STYLES)
    assert styles == QUESTIONS[caption, subset]


def test_four_captions_are_four_ways():
    four = ("A mug under a table", "A mug on a table", "A mug to the left of a table")
    example = Case("0", (), (*four, "A mug to the right of a table"), {"subset": "on_under"})
    question = "Is the mug to the left of, to the right of, on, or under the table?"
    assert prompts.question_of_case(example, "vlm2vec") == question
    assert prompts.question_of_case(example) == f"{question} Answer left, right, on or under."
    set_b = dataclasses.replace(example, captions=("A mug behind a table", *four[2:], "A", "B"))
    question = "Is the mug to the left of, to the right of, in front of, or behind the table?"
    assert prompts.question_of_case(set_b) == f"{question} Answer left, right, front or behind."


def test_the_swap_is_a_function_of_seed_and_example_and_only_of_photos():
    def questions(caption, seed):
        examples = [case(caption, "left_right", name=str(k)) for k in range(200)]
        return [prompts.question_of_case(example, seed=seed) for example in examples]

    photo = "A photo of a dog on the left"
    drawn = questions(photo, 0)
    assert drawn == questions(photo, 0)
    assert drawn != questions(photo, 1)
    assert 70 < sum("on the right or on the left" in question for question in drawn) < 130
    assert len(set(questions("A mug to the left of a plate", 0))) == 1


def test_questions_of_scores_and_letters():
    assert prompts.VQASCORE.replace("{}", "a mug") == (
        'Does this figure show "a mug"? Please answer yes or no.'
    )
    assert prompts.multiple_choice_question("Is it open?", "(a) Open (b) Closed") == (
        "Is it open? (a) Open (b) Closed\n"
        "Answer with the option's letter from the given choices directly."
    )


def test_unknown_names_and_captions_are_refused():
    with pytest.raises(UsageError, match="style"):
        prompts.photo_question("left_right", "dog", None, style="other")
    with pytest.raises(UsageError, match="two objects are"):
        prompts.photo_question("top_bottom", "dog", "cat")
    with pytest.raises(UsageError, match="four_way"):
        prompts.whatsup_question("four", "mug", "table")
    with pytest.raises(DataError, match="no objects in 'a red mug'"):
        prompts.objects("a red mug")

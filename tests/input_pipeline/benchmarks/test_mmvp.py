"""MMVP and MMVP-VLM: pairs, categories by position, prompts, questions, spellings, label fixes."""

import shutil
from collections import Counter

import pytest

from vlc_jax.evaluators import questions
from vlc_jax.input_pipeline.benchmarks import mmvp
from vlc_jax.input_pipeline.record import DataError


def test_a_pair_is_two_rows_with_their_images(root):
    case = mmvp.mmvp(root).cases[1]
    assert [path.name for path in case.images] == ["99.jpg", "100.jpg"]
    assert case.captions == (
        "a photo of a boat, seen from the left of pier 49",
        "a photo of a boat, seen from the right of pier 50",
    )
    assert mmvp.mmvp(root).summary[0] == "image_score"


def test_the_prompt_is_an_option_and_part_of_the_version(root):
    plain, bare = mmvp.mmvp_vlm(root), mmvp.mmvp_vlm(root, prompt="{}")
    assert plain.cases[0].captions[0] == f"a photo of {bare.cases[0].captions[0]}"
    assert plain.version != bare.version
    with pytest.raises(ValueError, match=r"one \{\} for the text; got 'a photo'"):
        mmvp.mmvp(root, prompt="a photo")


@pytest.mark.parametrize("reader", [mmvp.mmvp, mmvp.mmvp_vlm])
def test_questions_are_asked_with_their_answer(reader, root):
    case = reader(root, texts="questions").cases[0]
    assert case.captions == (
        "Is the boat of pier 0 left, or right? On the left",
        "Is the boat of pier 1 left, or right? Right",
    )
    assert case.images == reader(root).cases[0].images
    first, second = case.meta["questions"]
    assert (first["question"], first["text"]) == (
        "Is the boat of pier 0 left, or right?",
        "(a) On the left (b) Right",
    )
    assert first["options"] == ("On the left", "Right")
    assert (first["answer"], second["answer"]) == (0, 1)
    assert reader(root).cases[0].meta == {}
    with pytest.raises(ValueError, match=r"one of .*'questions'.*; got 'answers'"):
        reader(root, texts="answers")


@pytest.mark.parametrize(
    ("reader", "table"),
    [(mmvp.mmvp, "mmvp/Questions.csv"), (mmvp.mmvp_vlm, "mmvp_vlm/Questions-llava.csv")],
)
def test_an_embedder_is_asked_the_first_question_of_a_pair(reader, table, root):
    plain, asked = reader(root), questions.ask(reader(root, pair_question=True))
    assert [case.captions for case in asked.cases] == [case.captions for case in plain.cases]
    for case, other in zip(asked.cases, reader(root, texts="questions").cases, strict=True):
        (both,) = {image.question for image in case.images}
        assert both == other.meta["questions"][0]["question"]
    with pytest.raises(ValueError, match="pair_question goes with texts='statements'"):
        reader(root, texts="questions", pair_question=True)
    path = root / table
    path.write_text("".join(path.read_text().splitlines(True)[:3]))  # one pair is left
    with pytest.raises(DataError, match=f"{path.name} has questions of other pairs.*: 1 pairs"):
        reader(root, pair_question=True)


def test_categories_go_by_position_and_folders_by_type(root):
    cases = mmvp.mmvp_vlm(root).cases
    assert Counter(case.group["category"] for case in cases) == {
        "Orientation and Direction": 15,
        "Presence of Specific Features": 1,
    }
    assert [path.parent.name for path in cases[15].images] == ["Presence", "Presence"]


@pytest.mark.parametrize("spelling", ["MLLM_VLM_Images", "MMVP_VLM_Images"])
def test_folders_of_images_are_found_in_all_spellings(root, spelling):
    shutil.move(root / "mmvp_vlm" / "MLLM_VLM Images", root / "mmvp_vlm" / spelling)
    assert all(path.is_file() for case in mmvp.mmvp_vlm(root).cases for path in case.images)


def test_label_fixes_swap_one_pair_and_leave_out_another(root):
    plain, fixed = mmvp.mmvp(root), mmvp.mmvp(root, label_fixes=True)
    assert [case.captions for case in fixed.cases] == [
        plain.cases[0].captions,
        plain.cases[2].captions[::-1],
    ]
    assert [case.images for case in fixed.cases] == [plain.cases[n].images for n in (0, 2)]
    assert plain.version != fixed.version
    assert any("279" in note and "99" in note for note in fixed.notes)
    asked = mmvp.mmvp(root, pair_question=True, label_fixes=True)
    assert asked.cases[1].meta["question"] == "Is the boat of pier 139 left, or right?"
    both = mmvp.mmvp(root, texts="questions").cases[2].meta["questions"]
    fixed = mmvp.mmvp(root, texts="questions", label_fixes=True)
    assert fixed.cases[1].meta["questions"] == both[::-1]


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("Questions-clip.csv", "1,x,a\n4,x,b\n", "case 1: pairs have consecutive numbers.*'4'"),
        ("Questions-clip.csv", "2,x,a\n3,x,b\n", "case 0: pairs .* first of them odd.*'2'"),
        ("Questions-clip.csv", "1,x,a\n", "has 1 rows, which make no pairs"),
        ("Questions.csv", "1,Open?,(a) Yes (b) No,(c)\n", r"case 0 has no options .*\(c\)"),
    ],
)
def test_wrong_content_names_file_and_case(root, name, rows, message):
    path = root / "mmvp" / name
    path.write_text(path.read_text().splitlines()[0] + "\n" + rows)
    texts = "statements" if name == "Questions-clip.csv" else "questions"
    with pytest.raises(DataError, match=f"{name}.*{message}"):
        mmvp.mmvp(root, texts=texts)


def test_all_converted_statements_and_questions_are_there(root, real_data):
    benchmark = mmvp.mmvp(real_data, folder="mmvp_converted", images=root)
    assert len(benchmark.cases) == 150
    assert benchmark.notes == ()
    assert len(mmvp.mmvp(real_data, folder="mmvp_converted", label_fixes=True).cases) == 149
    # MMVP-VLM's own table with the types is not there: one of the same length takes its place.
    folder = root / "converted"
    folder.mkdir()
    shutil.copy(real_data / "mmvp_converted" / "Questions-llava.csv", folder)
    rows = [f"{n},Color,a boat {n}" for n in range(1, 271)]
    (folder / "Questions.csv").write_text("\n".join(["Question ID,Type,Statement", *rows]))
    asked = mmvp.mmvp_vlm(root, folder="converted", texts="questions")
    assert Counter(case.group["category"] for case in asked.cases) == dict.fromkeys(
        mmvp.CATEGORIES, 15
    )

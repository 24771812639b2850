"""Results are filed under what was asked."""

import json

import pytest

from vlc_jax.run import results

QUESTION = results.Question("coco", "retrieval", {"split": "test"}, "abc/5", None)


def row(question):
    return {
        "reader": question.reader,
        "options": question.options,
        "version": question.data,
        "weights": question.weights,
        "summary": ["image_to_text_r1"],
        "metrics": {"image_to_text_r1": {"value": 0.5}},
    }


def write(folder, step, question):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{step}.json").write_text(json.dumps(row(question)))


def test_the_first_question_of_a_name_has_its_folder(tmp_path):
    assert results.folder_of(tmp_path, QUESTION) == tmp_path / "coco"
    write(tmp_path / "coco", 3, QUESTION)
    assert results.folder_of(tmp_path, QUESTION) == tmp_path / "coco"
    assert results.finished(tmp_path / "coco", 3, QUESTION)["version"] == "abc/5"
    assert results.finished(tmp_path / "coco", 4, QUESTION) is None


@pytest.mark.parametrize(
    "change",
    [
        {"reader": "zeroshot"},
        {"options": {"split": "val"}},
        {"options": {}},
        {"data": "abc/6"},
        {"weights": "0123"},
    ],
)
def test_another_question_has_a_folder_of_its_own(tmp_path, change):
    write(tmp_path / "coco", 3, QUESTION)
    other = QUESTION._replace(**change)
    folder = results.folder_of(tmp_path, other)
    assert folder.name == f"coco@{other.digest}"
    assert results.finished(tmp_path / "coco", 3, other) is None
    write(folder, 3, other)
    assert results.folder_of(tmp_path, other) == folder
    assert results.finished(folder, 3, other)
    assert results.folder_of(tmp_path, QUESTION) == tmp_path / "coco"


def test_a_tuple_is_the_list_that_it_was_saved_as(tmp_path):
    asked = QUESTION._replace(options={"templates": ("a {}", "the {}")})
    write(tmp_path / "coco", 3, asked)
    assert results.folder_of(tmp_path, asked) == tmp_path / "coco"


WHOLE = row(QUESTION)
DAMAGED = {
    "empty": b"",
    "cut": json.dumps(WHOLE)[:-20].encode(),
    "deep": b"[" * 100_000,
    "not UTF-8": b'{"\xff": 1}',
    "a list": [WHOLE],
    "no summary": WHOLE | {"summary": []},
    "a text as summary": WHOLE | {"summary": "image_to_text_r1"},
    "no metrics": WHOLE | {"metrics": []},
    "a text as value": WHOLE | {"metrics": {"image_to_text_r1": {"value": "high"}}},
    "a number as metric": WHOLE | {"metrics": {"image_to_text_r1": 5}},
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_result_is_made_again(tmp_path, case):
    write(tmp_path / "coco", 3, QUESTION)
    assert results.finished(tmp_path / "coco", 3, QUESTION)
    content = DAMAGED[case]
    content = content if isinstance(content, bytes) else json.dumps(content).encode()
    (tmp_path / "coco/3.json").write_bytes(content)
    assert results.finished(tmp_path / "coco", 3, QUESTION) is None
    assert results.folder_of(tmp_path, QUESTION) == tmp_path / "coco"

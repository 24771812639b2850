from pathlib import Path

from vlc_jax.report import examples, table
from vlc_jax.report.read_workdir import Example


def test_images_of_one_caption_show_which_of_them_was_chosen():
    row = {"id": "a", "captions": ["a cat"], "scores": [[0.3], [0.5], [0.3]], "correct": False}
    files = tuple(Path(f"{k}.png") for k in range(3))
    ((_, shown),) = examples.show([Example(row, files)])
    assert [image.file for image in shown] == list(files)
    assert [image.is_right for image in shown] == [False, False, False]  # the third one ties
    (options,) = zip(*(image.options for image in shown), strict=True)
    assert [option.is_correct for option in options] == [True, False, False]
    assert [option.is_chosen for option in options] == [False, True, False]
    row |= {"scores": [[0.6], [0.5], [0.3]], "correct": True}
    ((_, shown),) = examples.show([Example(row, files)])
    assert [image.is_right for image in shown] == [True, True, True]


def test_an_example_has_what_was_asked_of_its_images_and_answered():
    row = {"id": "a", "captions": ["A", "B"], "scores": [[1.0, 0.0], [0.0, 1.0]], "correct": True}
    files = (Path("0.png"), Path("1.png"))

    def said(**more):
        ((_, shown),) = examples.show([Example(row | more, files)])
        return [(image.question, image.answer) for image in shown]

    both = {"questions": ["Open?", "Closed?"], "answers": ["(a)", "B"]}
    assert said(**both) == [("Open?", "(a)"), ("Closed?", "B")]
    assert said() == [("", "")] * 2
    assert said(questions=["Open?"], answers=3) == [("Open?", ""), ("", "")]
    ((_, shown),) = examples.show(
        [Example(row | {"scores": [1.0, 0.0], "question": "Left?", "answer": "left"}, files[:1])]
    )
    assert [(image.question, image.answer) for image in shown] == [("Left?", "left")]


def test_notes_are_those_of_the_benchmarks_and_of_their_ties_each_once():
    results = [
        {"benchmark": "a", "notes": ["3 cases; published are 4"], "details": {"tie": "half"}},
        {"benchmark": "b", "notes": [], "details": {"tie": "strict"}},
        {"benchmark": "c", "notes": "no list", "details": None},
        {"benchmark": "d", "notes": [], "details": {"tie": "half"}},
    ]
    assert table.notes(results) == [
        "a: 3 cases; published are 4",
        "a, d: ties do not count as errors but by the policy 'half'",
    ]

"""Benchmarks made of sources: retrieval cases from one's own files, zero-shot digits."""

import inspect
import json

import numpy as np
import pytest
from PIL import Image

from tests.support import helpers
from vlc_jax.input_pipeline.benchmarks import from_source
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import digits


@pytest.fixture
def table(tmp_path):
    rows = []
    for i in range(5):
        (tmp_path / "deep").mkdir(exist_ok=True)
        Image.fromarray(np.full((9, 9, 3), 50 * i, np.uint8)).save(tmp_path / f"deep/p {i}.png")
        rows.append({"image": f"deep/p {i}.png", "caption": [f"grey {i}", " ", "grey"]})
    return helpers.write_rows(tmp_path / "captions.jsonl", rows)


def test_retrieval_has_a_case_per_image_with_all_its_captions(table):
    benchmark = from_source.retrieval("all", path=str(table))
    assert [case.captions for case in benchmark.cases] == [(f"grey {i}", "grey") for i in range(5)]
    assert [case.images[0].name for case in benchmark.cases] == [f"p {i}.png" for i in range(5)]
    assert len({case.id for case in benchmark.cases}) == 5
    assert all("/" not in case.id and " " not in case.id for case in benchmark.cases)
    fewer = from_source.retrieval("all", count=3, path=str(table))
    assert len(fewer.cases) == 3
    assert fewer.version != benchmark.version
    first = benchmark.cases[0].images[0]  # another image under the same name
    first.write_bytes(first.read_bytes() + bytes(9))
    assert from_source.retrieval("all", path=str(table)).version != benchmark.version


def test_retrieval_refuses_to_skip_a_record_in_silence(table):
    rows = table.read_text().splitlines()
    rows[2] = json.dumps({"image": "deep/p 2.png", "caption": ""})
    table.write_text("\n".join(rows))
    with pytest.raises(DataError, match=r"benchmark record deep/p 2\.png#3: no caption"):
        from_source.retrieval("all", path=str(table))


def test_retrieval_among_rows_equals_that_among_lists(table):
    benchmark = from_source.retrieval("all", path=str(table))
    rows = [json.loads(line) for line in table.read_text().splitlines()]
    apart = [row | {"caption": text} for row in rows for text in row["caption"]]
    flat = helpers.write_rows(table.with_name("flat.jsonl"), apart)
    joined = from_source.retrieval("all", path=str(flat))
    contents = [
        [(case.images, case.captions) for case in each.cases] for each in (benchmark, joined)
    ]
    assert contents[0] == contents[1]
    assert joined.notes == ()


def test_cases_of_one_image_are_counted_in_a_note(table):
    lines = table.read_text()
    table.write_text(lines + lines.partition("\n")[0].replace("deep/", "deep/../deep/"))
    (note,) = from_source.retrieval("all", path=str(table), join_rows=False).notes
    assert note.startswith("1 of 6 cases show an image of another case")


def test_zeroshot_digits_have_labels_classes_and_templates():
    benchmark = from_source.zeroshot("test")
    assert benchmark.classes == digits.CLASSES
    assert benchmark.templates == digits.TEMPLATES
    assert len(benchmark.cases) == 360
    for case in benchmark.cases[::50]:
        assert case.captions == ()
        assert benchmark.classes[case.meta["label"]] == case.group
    assert len(from_source.zeroshot("test", count=7, size=16).cases) == 7


def test_zeroshot_needs_labels_and_a_count_that_makes_sense(table):
    with pytest.raises(ValueError, match="needs labels; source 'records' has none"):
        from_source.zeroshot("all", source="records", path=str(table))
    with pytest.raises(ValueError, match="count is a whole number from 1 on; got 0"):
        from_source.zeroshot("test", count=0)
    with pytest.raises(ValueError, match=r"train_count is a whole number from 1 on; got 2\.5"):
        inspect.unwrap(from_source.linear_probe)("test", train_count=2.5)


ROMAN = ("nil", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix")


@pytest.mark.parametrize("kind", ["list", "lines", "json", "object"])
def test_classes_are_called_what_the_config_says(tmp_path, kind):
    path = tmp_path / ("names.txt" if kind == "lines" else "names.json")
    known = dict(zip(digits.CLASSES, ROMAN, strict=True))
    path.write_text("\n".join(ROMAN) if kind == "lines" else json.dumps(ROMAN))
    if kind == "object":
        path.write_text(json.dumps({"more": "than needed"} | known))
    given = {"class_names": list(ROMAN) if kind == "list" else str(path)}
    benchmark = from_source.zeroshot("test", count=20, templates="a {} on stone", **given)
    assert benchmark.classes == ROMAN
    assert benchmark.prompts[:2] == ["a nil on stone", "a i on stone"]
    assert all(case.group == ROMAN[case.meta["label"]] for case in benchmark.cases)
    plain = from_source.zeroshot("test", count=20)
    assert benchmark.version != plain.version != from_source.zeroshot("test", **given).version


def test_templates_come_from_a_file_too(tmp_path):
    (tmp_path / "templates.txt").write_text("a {}\n\nthe {} here\n")
    benchmark = from_source.zeroshot("test", count=2, templates=tmp_path / "templates.txt")
    assert benchmark.templates == ("a {}", "the {} here")
    assert benchmark.classes == digits.CLASSES


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"class_names": ROMAN[:9]}, r"has 9 names for the 10 classes .*\(zero, one, \.\.\.\)"),
        ({"class_names": "none.txt"}, r"cannot read none\.txt"),
        ({"class_names": (1, 2)}, "class_names are texts"),
        ({"templates": ["a photo"]}, r"\{\} once, in place of the class, .*; got 'a photo'"),
        (
            {"templates": ["a {} of {x}"]},
            r"no other braces and no number in front; got 'a \{\} of \{x\}'",
        ),
        ({"templates": []}, "there are none"),
    ],
)
def test_class_names_and_templates_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        from_source.zeroshot("test", **options)


def test_equal_class_names_are_named_in_a_note():
    names = (*ROMAN[:9], "i")
    benchmark = from_source.zeroshot("test", count=40, class_names=names)
    assert benchmark.classes == names
    groups = ("nil", "i (1)", *ROMAN[2:9], "i (9)")
    assert all(case.group == groups[case.meta["label"]] for case in benchmark.cases)
    assert benchmark.notes[0].startswith("several classes have the name 'i': their prompts tie")
    assert from_source.zeroshot("test", count=2).notes == ()

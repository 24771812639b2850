"""What holds for every reader of a published evaluation set; its own tests are in its file."""

import json
import os
import shutil

import numpy as np
import pytest

from tests.support import damage, sets
from tests.support.sets.random_scorer import random_scorer
from vlc_jax import evaluators
from vlc_jax.input_pipeline.benchmarks import PROTOCOL_OF, PUBLISHED, published
from vlc_jax.input_pipeline.commands import benchmarks as overview
from vlc_jax.input_pipeline.images import image_ops, parquet_file
from vlc_jax.input_pipeline.record import DataError

NAMES = list(PUBLISHED)
# damages of each set; VLC_DAMAGES=500 tries more, with VLC_DAMAGE_SEED others
ROUNDS = int(os.environ.get("VLC_DAMAGES", "6"))
SEED = int(os.environ.get("VLC_DAMAGE_SEED", "0"))


def read(name, at, **options):
    return PUBLISHED[name][0](**{**sets.options(name, at), **options})


@pytest.mark.parametrize("name", NAMES)
def test_cases_are_whole_and_run_through_their_protocol(name, all_sets):
    benchmark = read(name, all_sets)
    assert benchmark.name == name
    assert len({case.id for case in benchmark.cases}) == len(benchmark.cases) > 0
    for case in benchmark.cases:
        assert all(isinstance(caption, str) and caption for caption in case.captions)
        for each in case.images:
            assert image_ops.decode(each).shape[2] == 3
    result = evaluators.evaluate(PROTOCOL_OF[name], benchmark, random_scorer())
    row = evaluators.to_json(PROTOCOL_OF[name], benchmark, result, reader=name)
    assert row["summary"], "no metric of the summary was computed"
    of_geometry = {metric for metric in benchmark.summary if metric.startswith("image_cosine")}
    assert set(benchmark.summary) - of_geometry <= set(row["metrics"])
    assert row["metrics"][row["summary"][0]]["chance"] is not None


@pytest.mark.parametrize("name", NAMES)
def test_the_version_is_of_the_files_and_the_number_of_cases(name, all_sets):
    first, again, fewer = read(name, all_sets), read(name, all_sets), read(name, all_sets, count=1)
    assert first.version == again.version
    assert [case.id for case in first.cases] == [case.id for case in again.cases]
    assert 1 <= len(fewer.cases) <= len(first.cases)
    if len(fewer.cases) < len(first.cases):
        assert fewer.version != first.version
    # a part of a set is named as one, as 1,050 of 7,511 cases
    is_part = any(note.startswith(f"{len(fewer.cases):,} of ") for note in fewer.notes)
    assert is_part == (PUBLISHED[name][1].cases is not None)


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file_says_its_source_and_its_place(name, all_sets, tmp_path):
    origin = PUBLISHED[name][1]
    with pytest.raises(DataError, match="there is no folder") as caught:
        read(name, all_sets, root=tmp_path / "empty")
    for fact in (origin.source, origin.licence, f"ROOT/{origin.folder}"):
        assert fact in str(caught.value)
    (tmp_path / origin.folder).mkdir(parents=True)
    with pytest.raises(DataError, match="there is no") as caught:
        read(name, all_sets, root=tmp_path)
    assert origin.source in str(caught.value)
    with pytest.raises(ValueError, match="`root` is needed"):
        read(name, all_sets, root="")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("damage", ["empty", "cut", "other"])
def test_damaged_files_are_refused_by_name(name, all_sets, tmp_path, damage):
    origin = PUBLISHED[name][1]
    copy = tmp_path / "copy"
    shutil.copytree(all_sets / origin.folder, copy / origin.folder)
    names = [path for pattern in origin.files for path in (copy / origin.folder).glob(pattern)]
    assert names, f"the set in miniature has none of {origin.files}"
    if all(path.suffix in (".png", ".jpg", ".jpeg") for path in names):
        return  # images whose names are all there is to know; they are read later
    for path in names:
        content = path.read_bytes()
        harmed = {"empty": b"", "cut": content[: len(content) // 2], "other": b"[1, 2]"}[damage]
        path.write_bytes(harmed)
    options = {key: value for key, value in sets.options(name, all_sets).items() if key != "root"}
    if damage == "cut" and all(path.suffix in (".csv", ".tsv") for path in names):
        return  # a table that ends early has fewer rows, which the count then says
    if damage != "empty" and all(path.suffix == ".txt" for path in names):
        return  # each file is a caption, whatever it says
    with pytest.raises(DataError, match="|".join(path.name for path in names)):
        PUBLISHED[name][0](root=copy, **options)


@pytest.fixture(scope="module")
def sets_to_harm(tmp_path_factory, all_sets):
    return shutil.copytree(all_sets, tmp_path_factory.mktemp("harmed") / "sets")


@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_file_is_refused_by_name_or_read_right(name, sets_to_harm):
    origin = PUBLISHED[name][1]
    patterns = [(sets_to_harm / origin.folder).glob(pattern) for pattern in origin.files]
    paths = sorted(path for paths in patterns for path in paths if path.suffix[1:] in damage.KINDS)
    for number in range(ROUNDS if paths else 0):
        rng = np.random.default_rng((SEED, NAMES.index(name), number))
        path = paths[rng.integers(len(paths))]
        content = path.read_bytes()
        path.write_bytes(damage.damaged(path, rng))
        parquet_file._open.cache_clear()
        try:
            message = check_reading(name, sets_to_harm)
        finally:
            path.write_bytes(content)
        # tags of captions are in a file of their own, which lacks a damaged caption
        is_tagged = name.endswith("_order") and "tags.jsonl has no caption" in message
        assert is_tagged or path.name in message or not message


def check_reading(name, root):
    """Reads a set and checks that it can be evaluated; returns the message of a DataError."""
    try:
        benchmark = read(name, root)
    except DataError as error:
        return str(error)
    files = overview._files(benchmark)
    assert all(path.is_relative_to(root) and ".." not in path.parts for path in files)
    assert not any(os.path.exists(path) and path.is_dir() for path in files)
    if len(benchmark.cases) == 1 and PROTOCOL_OF[name] == "retrieval":
        return ""  # refused by the protocol
    result = evaluators.evaluate(PROTOCOL_OF[name], benchmark, random_scorer())
    json.dumps(evaluators.to_json(PROTOCOL_OF[name], benchmark, result, reader=name))
    return ""


def test_an_unknown_option_is_no_option_of_a_reader(all_sets):
    with pytest.raises(TypeError, match="rot"):
        PUBLISHED["sugarcrepe"][0](rot=all_sets)


def test_pixels_of_a_crop_are_those_of_the_box(all_sets):
    case = read("vg_relation", all_sets).cases[0]
    whole = image_ops.decode(case.images[0].image)
    left, top, right, bottom = case.images[0].box
    np.testing.assert_array_equal(image_ops.decode(case.images[0]), whole[top:bottom, left:right])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "text,other,text\na,b,c\n"),
        ("a.json", '[{"text": "a", "text": "c"}]'),
        ("a.jsonl", '{"text": "a", "text": "c"}\n'),
    ],
)
def test_a_field_that_a_file_has_twice_is_named(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    files = published.Files(published.Origin("choice", ".", (name,), ".", "", ""), "a", tmp_path)
    read = {"a.csv": files.table, "a.json": files.objects, "a.jsonl": files.json_lines}[name]
    with pytest.raises(DataError, match="'text' twice"):
        read(name, "text")

"""Counts of bindings: those of one pass over the table, however they are computed and merged."""

import collections
import json

import numpy as np
import pytest

from tests.input_pipeline.commands import test_engines
from tests.input_pipeline.hard_texts.test_bindings import COLOURS, RELATIONS, SHAPES
from vlc_jax.input_pipeline.commands import binding_parts, count_bindings, parts, shard_writer
from vlc_jax.input_pipeline.hard_texts import bindings
from vlc_jax.input_pipeline.record import Record
from vlc_jax.report import __main__ as report

WORDS = ["--tagger", "words", "--part-size", "7"]


def captions(number):
    """Two captions of a record."""
    a, b, r = COLOURS[number % 4], SHAPES[number // 4 % 4], RELATIONS[number // 16]
    return [f"a {a} {b} {r} a {b}", f"a {a} dog {number // 8}"]


class Pictures:
    fingerprint = "pictures"

    def __len__(self):
        return 40

    def __getitem__(self, index):
        return Record(str(index), np.full((8, 8, 3), index, np.uint8), captions(index))


@pytest.fixture
def table(tmp_path, monkeypatch):
    """captions.jsonl and a prepared folder with the same captions."""
    monkeypatch.chdir(tmp_path)
    rows = [json.dumps({"image": "x", "caption": captions(number)}) for number in range(40)]
    (tmp_path / "captions.jsonl").write_text("\n".join(rows))
    shard_writer.write(Pictures(), tmp_path / "prepared", size=8, shard_size=9)
    return tmp_path


def test_counts_are_those_of_every_caption_of_the_table(table, monkeypatch):
    tagger = bindings.make_tagger("words")
    every = [text for number in range(40) for text in captions(number)]
    expected = collections.Counter(b for text in every for b in bindings.find(tagger(text)))
    by_hash = {bindings._hash(binding): count for binding, count in expected.items()}
    assert len(by_hash) > 20
    for number, (source, more) in enumerate(
        (
            ("captions.jsonl", []),
            ("prepared", ["--parts", "p"]),
            ("captions.jsonl", ["--parts", "q"]),
        )
    ):
        if number:
            monkeypatch.setattr(binding_parts, "_AT_ONCE", 999)
            monkeypatch.setattr(parts, "engine", lambda *_: test_engines.workers)
        assert count_bindings.main([source, "--out", f"{number}.npy", *WORDS, *more]) == 0
        hashes, counts = np.load(f"{number}.npy")
        assert dict(zip(hashes.tolist(), counts.tolist(), strict=True)) == by_hash
        assert (np.diff(hashes) > 0).all()
    assert not [*table.glob("**/*.partial")]
    counted = bindings.Training(table / "1.npy", tagger="words")
    assert [*counted._hashes] == [
        *bindings.Training(table / "captions.jsonl", tagger="words")._hashes
    ]
    assert ("red", "circle") in counted
    assert ("red", "cat") not in counted


def test_a_hundred_ranges_hold_what_one_holds(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    hashes = rng.integers(-(2**63), 2**63, 500, dtype=np.int64)
    hashes[:2] = -(2**63), 2**63 - 1
    pieces = [np.unique(rng.choice(hashes, 200)) for _ in range(9)]
    contents = [np.array([5, *each, *np.ones_like(each)], "<i8").tobytes() for each in pieces]
    merged = []
    for at_once in (1 << 28, 300):
        monkeypatch.setattr(binding_parts, "_AT_ONCE", at_once)
        size = sum(map(len, contents))
        assert binding_parts.merge(contents, size, tmp_path, tmp_path / "x") == 45
        merged.append(np.load(tmp_path / "x"))
    assert (merged[0] == merged[1]).all()
    assert merged[0][1].sum() == sum(map(len, pieces))
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_wrong_counts_are_refused(table, capsys, monkeypatch):
    assert count_bindings.main(["captions.jsonl", "--out", "x.csv"]) == 2
    assert count_bindings.main(["captions.jsonl", "--out", "x.npy", "--column", "text"]) == 2
    assert "has no column 'text'" in capsys.readouterr().err
    (table / "empty.txt").write_text("\n")
    assert count_bindings.main(["empty.txt", "--out", "x.npy", *WORDS]) == 3
    assert count_bindings.main(["captions.jsonl", "--out", "x.npy", *WORDS]) == 0
    (table / "x.json").write_text(json.dumps({"by": "bindings 1 spacy/3"}))
    assert report.main(["run", "--train", "x.npy", "--tagger", "words"]) == 2
    assert "x.npy has bindings 1 spacy/3, not bindings 1 words/1" in capsys.readouterr().err
    (table / "x.json").unlink()
    assert report.main(["run", "--train", "x.npy", "--tagger", "words"]) == 2
    assert "x.npy or its .json is not of vlc-jax bindings" in capsys.readouterr().err


def test_beam_counts_the_same(table):
    pytest.importorskip("apache_beam", reason=test_engines.NEEDS_BEAM)
    flags = ["--", "--direct_num_workers=2", "--direct_running_mode=multi_threading"]
    more = ["--runner", "DirectRunner", *flags]
    for number, words in enumerate(([], more)):
        assert count_bindings.main(["prepared", "--out", f"{number}.npy", *WORDS, *words]) == 0
    assert (table / "0.npy").read_bytes() == (table / "1.npy").read_bytes()

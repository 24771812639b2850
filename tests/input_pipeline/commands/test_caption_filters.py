"""Filters of captions: what is left out takes its texts with it and is counted, not bad."""

import json

import pytest
from PIL import Image

from tests.support.numbered import Numbered
from vlc_jax.input_pipeline.commands import prepare
from vlc_jax.input_pipeline.commands.caption_filters import FilteredSource, LeftOut
from vlc_jax.input_pipeline.record import Conversation, DataError, Record
from vlc_jax.input_pipeline.sources.shards import ShardsSource


class Records(list):
    fingerprint = "records"


RECORD = Record(
    "a",
    b"",
    captions=["one", "one two", Conversation((("one?", "two three"),)), "a b c d"],
    negatives=[["1"], ["2"], ["3"], ["4"]],
    negative_kinds=[["k"], ["k"], ["k"], ["l"]],
    questions=["q", "r", "s", "t"],
    caption_weights=[1, 2, 3, 4],
    meta={"lang": ["en", "EN_gb", "de", "eng"]},
)


def test_a_caption_is_left_out_with_its_texts_and_weights():
    left = FilteredSource(Records([RECORD]), min_words=2, max_words=3)[0]
    assert left.captions == RECORD.captions[1:3]
    assert left.negatives == [["2"], ["3"]]
    assert left.negative_kinds == [["k"], ["k"]]
    assert left.questions == ["r", "s"]
    assert left.caption_weights == [2, 3]
    assert (left.positives, left.meta) == ((), RECORD.meta)
    assert left.left_out == {"short": 1, "long": 1}
    assert FilteredSource(Records([RECORD]), max_words=4)[0] is RECORD
    with pytest.raises(LeftOut) as caught:
        FilteredSource(Records([RECORD]), min_words=5)[0]
    assert caught.value.counts == {"short": 4}


@pytest.mark.parametrize(
    ("languages", "kept"), [(["en"], [0, 1]), (["en-GB"], [1]), (["de", "eng"], [2, 3])]
)
def test_a_language_is_a_code_or_the_beginning_of_one(languages, kept):
    source = FilteredSource(Records([RECORD]), languages=languages, language_field="lang")
    assert source[0].captions == [RECORD.captions[position] for position in kept]
    assert source[0].left_out == {"language": 4 - len(kept)}


@pytest.mark.parametrize("field", ["absent", "two", "number"])
def test_a_record_without_its_language_is_bad(field):
    record = Record("a", b"", ["x", "y", "z"], meta={"two": ["en", "en"], "number": 3})
    source = FilteredSource(Records([record]), languages=["en"], language_field=field)
    with pytest.raises(DataError, match=rf"'{field}' of a record is a language, or one per") as e:
        source[0]
    assert not isinstance(e.value, LeftOut)


def test_numbers_that_leave_nothing_are_refused():
    with pytest.raises(ValueError, match="captions of 5 to 4 words: there are none"):
        FilteredSource(Numbered(), min_words=5, max_words=4)


def test_left_out_captions_are_counted_and_are_not_bad(tmp_path, capsys):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    texts = {"en": ["a", "a dog", "a dog runs far away"], "fr": ["un chien", "un chat"]}
    rows = [{"image": "a.png", "caption": texts[name], "lang": name} for name in ("en", "fr")]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows * 5)))
    words = ["--source", "records", "--option", f"path={tmp_path / 't.jsonl'}", "--size", "8"]
    words += ["--option", "join_rows=False", "--shard-size", "3", "--max-bad-share", "0"]
    words += ["--min-words", "2", "--max-words", "4", "--languages", "en", "--languages", "de"]
    words += ["--language-field", "lang", "--out", str(tmp_path / "out")]
    written = "5 records (5 captions, 1 different images) in 4 shards"
    left_out = "20 captions and with them 5 records did not pass the filters"
    for _ in range(2):
        assert prepare.main(words) == 0
        said = capsys.readouterr().out
        assert written in said
        assert f"{left_out} (10 language, 5 long, 5 short)" in said
    shards = ShardsSource(path=tmp_path / "out")
    assert [shards[index].captions for index in range(len(shards))] == [["a dog"]] * 5
    assert shards.manifest["skipped"] == 0
    assert prepare.main([*words, "--min-words", "1"]) == 2
    assert "begun with filters" in capsys.readouterr().err

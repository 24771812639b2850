"""Hard texts made when data are prepared: which, of what kind, and what the manifest says."""

import collections
import dataclasses
import json

import numpy as np
import pytest

from tests.support import generators, helpers, miniature
from vlc_jax.input_pipeline.commands import generated_texts, prepare, shard_writer
from vlc_jax.input_pipeline.hard_texts import sampling, svlc
from vlc_jax.input_pipeline.images.transforms import ImageTransform
from vlc_jax.input_pipeline.loader.inspection import preview
from vlc_jax.input_pipeline.loader.loader import make_train
from vlc_jax.input_pipeline.record import DataError, Record
from vlc_jax.input_pipeline.sources.shards import ShardsSource
from vlc_jax.input_pipeline.tokenizers.word_level import WordTokenizer


class Words:
    """Record i has captions "ni nj" and "alone", and a negative of its own for the first."""

    fingerprint = "words"

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return Record(
            id=f"r{index}",
            image=np.full((8, 8, 3), index, np.uint8),
            captions=[f"n{index} n{index + 1}", "n0", " "],
            negatives=[["n29"], [], []],
        )


def generated(negatives=(), positives=(), count=3, seed=0, source=None):
    made = {
        side: {generator.name: generator for generator in side_generators}
        for side, side_generators in (("negatives", negatives), ("positives", positives))
    }
    return generated_texts.GeneratedSource(source or Words(), made, count=count, seed=seed)


def test_every_caption_gets_texts_of_every_kind_beside_its_own():
    source = generated([generators.Reversal(), generators.Numbers()], [generators.Prefix("n5 ")])
    record = source[3]
    assert record.negatives[0][:2] == ["n29", "n4 n3"]
    assert record.negative_kinds[0] == ["given", "reversal", "numbers", "numbers", "numbers"]
    assert record.negative_kinds[1:] == [["numbers"] * 3, []]  # nothing fits; blank
    assert len({*record.negatives[0]}) == 5
    assert record.positives == [["n5 n3 n4"], ["n5 n0"], []]
    assert record.positive_kinds == [["prefix"], ["prefix"], []]


def test_draws_depend_on_seed_record_and_caption_alone():
    one, other = (generated([generators.Numbers()], source=Words()) for _ in range(2))
    forwards = [one[i].negatives for i in range(12)]
    assert forwards == [other[i].negatives for i in reversed(range(12))][::-1]
    assert forwards != [generated([generators.Numbers()], seed=1)[i].negatives for i in range(12)]
    drawn = [[text.split()[-1] for text in texts[1]] for texts in forwards]
    assert len({*map(tuple, drawn)}) > 8


def test_a_caption_that_has_texts_of_a_kind_gets_no_others_of_it():
    class Held(Words):
        def __getitem__(self, index):
            record = super().__getitem__(index)
            return dataclasses.replace(record, negative_kinds=[["reversal"], [], []])

    record = generated([generators.Reversal()], source=Held())[0]
    assert record.negatives == [["n29"], [], []]
    assert record.negative_kinds == [["reversal"], [], []]


def test_training_gets_prepared_texts_by_their_kind(tmp_path):
    source = generated([generators.Reversal(), generators.Numbers()])
    shard_writer.write(source, tmp_path, size=8, texts=source.request)
    shards = ShardsSource(path=tmp_path)
    for index in range(12):
        for field in ("negatives", "negative_kinds", "positives", "positive_kinds"):
            assert [*getattr(shards[index], field)] == [*getattr(source[index], field)]

    class Never(generators.Reversal):
        def __call__(self, caption, rng, count, scene=None):
            assert caption == "n0", "made again though it was prepared"
            return []

    texts = sampling.make_hard_texts(
        "negatives", count=1, generators={"reversal": 1.0}, table={"reversal": Never}
    )
    tokenizer = WordTokenizer(4, words=[f"n{i}" for i in range(30)])
    with make_train(
        shards, tokenizer, ImageTransform(8), batch_size=12, seed=0, negatives=texts
    ) as loader:
        batch = next(loader)
    for level, text, negative, mask in zip(
        batch["image"][:, 0, 0, 0], batch["text"], batch["negative_text"], batch["negative_mask"],
        strict=True,
    ):  # fmt: skip
        assert mask[0] == (tokenizer([f"n{level} n{level + 1}"])[0] == text).all()
        if mask[0]:
            assert (negative[0] == tokenizer([f"n{level + 1} n{level}"])[0]).all()
    assert 0 < batch["negative_mask"].sum() < 12


def test_stored_texts_of_svlc_are_of_every_class():
    """Else a caption that is stored once would keep the class of that one draw."""

    class Photo(Words):
        def __getitem__(self, index):
            captions = ["a red metal car behind a big dirty truck"]
            return Record(id=f"r{index}", image=np.zeros((8, 8, 3), np.uint8), captions=captions)

    rule = svlc.SvlcRule(mode="clean")
    source = generated([rule], source=Photo(), count=8)
    changed = [
        {word for word in ("red", "metal", "behind", "big", "dirty") if word not in text.split()}
        for index in range(12)
        for text in source[index].negatives[0]
    ]
    assert all(len(words) == 1 for words in changed)
    assert len(changed) == 12 * 8
    counts = collections.Counter(next(iter(words)) for words in changed)
    assert min(counts[word] for word in ("red", "metal", "behind", "big", "dirty")) > 8
    for index in range(12):
        texts = source[index].negatives[0]
        assert len({*texts}) == 8
        assert len({word for words in changed[8 * index : 8 * index + 8] for word in words}) > 2


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 1},
        {"count": 2},
        {"negatives": [generators.Reversal()]},
        {"negatives": [generators.Prefix("n7 ")]},  # another version
    ],
)
def test_another_request_for_texts_is_refused(tmp_path, other):
    first = {"negatives": [generators.Prefix("n6 ")]}
    source = generated(**first)
    made = shard_writer.write(source, tmp_path, size=8, texts=source.request)
    assert made["request"]["texts"] == {
        "negatives": {"prefix": "prefix n6 "}, "positives": {}, "count": 3, "seed": 0,
    }  # fmt: skip
    source = generated(**first)
    assert made == shard_writer.write(source, tmp_path, size=8, texts=source.request)
    changed = generated(**first | other)
    with pytest.raises(ValueError, match="was begun with texts"):
        shard_writer.write(changed, tmp_path, size=8, texts=changed.request)


def test_stored_texts_of_another_version_are_refused(tmp_path):
    source = generated([generators.Prefix("n6 ")])
    shard_writer.write(source, tmp_path, size=8, texts=source.request)
    shards = ShardsSource(path=tmp_path)
    assert shards.text_versions == {"negatives": {"prefix": "prefix n6 "}}
    tokenizer = WordTokenizer(4, words=[f"n{i}" for i in range(30)])
    report = preview(shards, tokenizer, ImageTransform(8))

    def texts(prefix, **shares):
        options = {} if shares else {"prefix": {"prefix": prefix}}
        shares, table = shares or {"prefix": 1.0}, {"prefix": generators.Prefix}
        return sampling.make_hard_texts(
            "negatives", count=1, generators=shares, options=options, table=table
        )

    message = "'prefix' was prepared with 'prefix n6 ', asked for is 'prefix n7 '.*prepare again"
    with pytest.raises(ValueError, match=message):
        report.check_hard_texts({"negatives": texts("n7 ")})
    with pytest.raises(ValueError, match=message):
        make_train(
            shards, tokenizer, ImageTransform(8), batch_size=4, seed=0, negatives=texts("n7 ")
        )
    with pytest.raises(ValueError, match=message):
        generated([generators.Prefix("n7 ")], source=shards)
    report.check_hard_texts({"negatives": texts("n6 ")})
    report.check_hard_texts({"positives": texts("n7 ")})  # made at each reading
    report.check_hard_texts({"negatives": texts("", from_record=1.0)})  # whatever is there


def test_versions_of_texts_outlive_a_second_preparation(tmp_path):
    source = generated([generators.Reversal()])
    shard_writer.write(source, tmp_path / "one", size=8, texts=source.request)
    option = f"path={tmp_path / 'one'}"
    out = str(tmp_path / "two")
    again = ["--source", "shards", "--option", option, "--split", "all", "--size", "8"]
    assert prepare.main([*again, "--out", out]) == 0
    assert ShardsSource(path=out).text_versions == {"negatives": {"reversal": "reversal 1"}}
    more = generated([generators.Numbers()], source=ShardsSource(path=out))
    assert more.request["negatives"] == {"reversal": "reversal 1", "numbers": "numbers 1"}


def test_a_record_of_an_unreadable_caption_is_listed(tmp_path):
    source = generated([generators.Prefix("n6 ", refused="n11 n12")])
    shard_writer.write(source, tmp_path, size=8, max_bad_share=0.1)
    (row,) = helpers.rows(tmp_path / "skipped.jsonl")
    assert row == {"id": "record 11", "reason": "r11: prefix: cannot tag 'n11 n12'"}
    with pytest.raises(DataError, match="cannot tag"):
        source[11]


def test_numbers_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="texts per kind must be at least 1"):
        generated(count=0)
    with pytest.raises(ValueError, match="the seed of texts"):
        generated(seed=-1)
    with pytest.raises(ValueError, match="'negclip', which is not requested"):
        generated_texts.make([], [], {"negclip": {}})
    with pytest.raises(ValueError, match="makes its texts once; got left_right,left_right"):
        generated_texts.make(["left_right", "left_right"], [], {})


@pytest.fixture
def command(tmp_path, monkeypatch):
    """The example of NegCLIP's table, in a folder with its files."""
    miniature.write_coco(tmp_path / "coco")
    monkeypatch.chdir(tmp_path)
    return ["negclip", *prepare.DATASETS["negclip"].example.split(), "--out", "out"]


def test_the_command_stores_texts_with_kind_and_version(command, capsys):
    names = ["--negatives", "shuffle_words, left_right", "--negatives", "shuffle_trigrams"]
    assert prepare.main([*command, *names, "--texts-per-kind", "2"]) == 0
    with open("out/manifest.json") as file:
        texts = json.load(file)["request"]["texts"]
    assert [*texts["negatives"]] == ["shuffle_words", "left_right", "shuffle_trigrams"]
    assert [*ShardsSource(path="out").text_versions["negatives"]] == [*texts["negatives"]]
    assert (texts["count"], texts["seed"]) == (2, 0)
    record = ShardsSource(path="out")[1]
    assert record.negative_kinds[0][:3] == ["negclip", "negclip", "shuffle_words"]
    assert sorted(record.negatives[0][2].split()) == sorted(record.captions[0].split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--negatives", "shufle_words"], "did you mean 'shuffle_words'?"),
        (["--generator-options", '{"shuffle_words": {}}'], "name them in --negatives or --posit"),
        (["--positives", "scenes_synonym"], "needs the scene graph"),
        *(
            (["--negatives", "shuffle_words", "--generator-options", wrong], "generator-options is")
            for wrong in ("{", "[]", '{"shuffle_words": 1}')
        ),
    ],
)
def test_a_wrong_generator_leaves_no_folder(tmp_path, command, capsys, words, message):
    assert prepare.main([*command, *words]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()

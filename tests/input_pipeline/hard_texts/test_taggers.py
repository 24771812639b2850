"""Taggers: of scenes, from a file, and of spaCy (where that is installed)."""

import importlib.util
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest

from vlc_jax.input_pipeline.commands import shard_writer, tag
from vlc_jax.input_pipeline.hard_texts.negatives import NEGATIVES
from vlc_jax.input_pipeline.hard_texts.taggers import make_tagger, write_tags
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.scenes import grammar, sample
from vlc_jax.input_pipeline.scenes import world as worlds
from vlc_jax.input_pipeline.scenes.stream import Stream
from vlc_jax.input_pipeline.sources.scene_records import ScenesSource

BOY = "A young boy quickly threw the red ball over a very tall fence."


def phrases(caption, tagged):
    return [
        caption[tagged.tokens[a].start : tagged.tokens[b - 1].stop] for a, b in tagged.noun_chunks
    ]


def test_scenes_are_tagged_exactly_and_counted_shapes_are_plural():
    caption = "a photo of a big red circle left of a square"
    tagged = make_tagger("scenes:scenes-mini")(caption)
    assert " ".join(f"{token.text}/{token.tag}/{token.pos}" for token in tagged.tokens) == (
        "a/DT/DET photo/NN/NOUN of/IN/ADP a/DT/DET big/JJ/ADJ red/JJ/ADJ circle/NN/NOUN left/IN/ADP"
        " of/IN/ADP a/DT/DET square/NN/NOUN"
    )
    assert phrases(caption, tagged) == ["a photo", "a big red circle", "a square"]

    tokens = make_tagger("scenes:scenes-mini")("there is two red circles").tokens
    assert [token.tag for token in tokens] == ["PRP", "VBP", "CD", "JJ", "NNS"]


def test_a_caption_that_the_grammar_cannot_say_is_refused():
    for caption in ("a big dog", "a red circle ", "A red circle"):
        with pytest.raises(DataError, match="is outside the grammar"):
            make_tagger("scenes:scenes-mini")(caption)


def captions(count):
    world = worlds.named("scenes-64", depth=0.7)
    style = grammar.style_of(world, count=0.2, negation=0.2)
    scenes = [sample.sample_scene(world, "train", index) for index in range(count)]
    return [
        grammar.describe(scene, Stream(f"tags/{i}"), style).text for i, scene in enumerate(scenes)
    ]


def test_tokens_stand_where_they_say_in_captions_of_every_kind():
    tagger = make_tagger("scenes:scenes-64")
    for caption in captions(300):
        tokens, chunks = tagger(caption)
        assert " ".join(token.text for token in tokens) == caption
        assert all(caption[token.start : token.stop] == token.text for token in tokens)
        assert all(tokens[stop - 1].pos == "NOUN" for _, stop in chunks)
        assert len(chunks) == sum(token.pos == "NOUN" for token in tokens)


def test_a_written_file_gives_the_same_tags_in_any_process(tmp_path):
    path, tagger, texts = tmp_path / "tags.jsonl", make_tagger("scenes:scenes-64"), captions(50)
    write_tags(path, tagger, [*texts, *texts])
    assert len(path.read_text().splitlines()) == 1 + len(set(texts))
    precomputed = make_tagger(f"precomputed:{path}")
    for reader in (precomputed, pickle.loads(pickle.dumps(precomputed))):
        assert all(reader(text) == tagger(text) for text in texts)
    assert precomputed.name == "precomputed:scenes:scenes-64"
    version = NEGATIVES["negclip"](tagger=f"precomputed:{path}").version
    assert f"tagger=precomputed:scenes:scenes-64@1/{precomputed.version[2:]}" in version
    write_tags(path, tagger, texts[1:])
    assert make_tagger(f"precomputed:{path}").version != precomputed.version


def test_a_stopped_command_leaves_no_file_that_looks_whole(tmp_path):
    def captions():
        yield "a red square"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_tags(tmp_path / "tags.jsonl", make_tagger("scenes:scenes-mini"), captions())
    assert not (tmp_path / "tags.jsonl").exists()


def test_the_command_writes_the_file(tmp_path):
    (tmp_path / "captions.json").write_text(json.dumps(["a red circle"]))
    files = [str(tmp_path / "captions.json"), str(tmp_path / "tags.jsonl")]
    command = [sys.executable, "-m", "vlc_jax.input_pipeline.commands.tag", "scenes:scenes-mini"]
    done = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(make_tagger(f"precomputed:{files[1]}")("a red circle").tokens) == 3


def test_the_command_tags_all_captions_of_a_prepared_folder(tmp_path):
    source = ScenesSource(count=6, captions=2)
    shard_writer.write(source, tmp_path / "shards", size=40)
    words = ["scenes:scenes-mini", str(tmp_path / "shards"), str(tmp_path / "tags")]
    assert tag.main(words) == 0
    tags = make_tagger(f"precomputed:{tmp_path / 'tags'}")
    texts = [text for index in range(6) for text in source[index].captions]
    assert [tags(text) for text in texts] == [make_tagger(words[0])(text) for text in texts]


@pytest.mark.parametrize(
    ("tagger", "file", "content", "code", "said"),
    [
        ("scene:scenes-mini", "IN", "[]", 2, "did you mean 'scenes'"),
        ("scenes:scenes-mini", "other.json", "[]", 2, "other.json"),
        ("scenes:scenes-mini", "IN", "{}", 3, "no JSON list of captions"),
        ("scenes:scenes-mini", "IN", "[", 3, "IN is not JSON: Expecting value"),
        ("scenes:scenes-mini", "IN", '["a dog"]', 3, "caption 'a dog' is outside the grammar"),
    ],
)
def test_the_command_says_what_is_wrong(
    tmp_path, monkeypatch, capsys, tagger, file, content, code, said
):
    (tmp_path / "IN").write_text(content)
    monkeypatch.chdir(tmp_path)
    assert tag.main([tagger, file, "OUT"]) == code
    assert said in capsys.readouterr().err


HEAD = '{"tagger": "t", "version": "1"}\n'
ROW = {"caption": "a dog", "tokens": [], "noun_chunks": []}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read"),
        (HEAD, "holds no caption"),
        ("{}\n" + HEAD, "no field 'tagger'"),
        (HEAD + "dog\n", "cannot be read: Expecting value"),
        (HEAD + json.dumps(ROW) + "\n[]\n", "a row is one JSON object; got a list"),
        (HEAD + json.dumps({**ROW, "caption": "a cat"}) + "\n", "no caption 'a dog'"),
        (HEAD + '{"caption": "a dog"}\n', "no field 'tokens'"),
        (HEAD + json.dumps({**ROW, "tokens": [{"text": "a"}]}) + "\n", "a token has the fields"),
        (HEAD + json.dumps({**ROW, "noun_chunks": [1]}) + "\n", "a noun chunk two numbers"),
        (
            HEAD + '{"caption": "a dog", "noun_chunks": [], "tokens": [{"text": "dog", "tag": "NN",'
            ' "pos": "NOUN", "start": 1, "stop": 4}]}\n',
            "wrong position of",
        ),
    ],
)
def test_broken_files_are_named_with_what_is_wrong(tmp_path, content, said):
    path = tmp_path / "tags.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(DataError, match=f"tags.jsonl.*{said}"):
        make_tagger(f"precomputed:{path}")("a dog")


def test_generators_pass_on_that_a_caption_is_not_in_the_file(tags):
    for name in ("negclip", "shuffle_nouns_and_adjectives"):
        with pytest.raises(DataError, match="no caption 'a fish'"):
            NEGATIVES[name](tagger=tags)("a fish", np.random.default_rng(0), 1)


def test_without_spacy_its_tagger_says_how_to_install_it(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "spacy" else find(name)
    )
    with pytest.raises(ValueError, match=r"pip install spacy.*spacy download en_core_web_lg"):
        NEGATIVES["negclip"]()


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    """A spaCy pipeline with all components that count, taught one sentence."""
    spacy = pytest.importorskip("spacy", reason="spaCy is not installed: pip install spacy")
    from spacy.training import Example

    made = spacy.blank("en")
    for component in ("tagger", "morphologizer"):
        made.add_pipe(component)
    made.add_pipe("parser", config={"min_action_freq": 1})
    tags, parts, dependencies = [
        row.split()
        for row in (
            "DT JJ NN RB VBD DT JJ NN IN DT RB JJ NN .",
            "DET ADJ NOUN ADV VERB DET ADJ NOUN ADP DET ADV ADJ NOUN PUNCT",
            "det amod nsubj advmod ROOT det amod dobj prep det advmod amod pobj punct",
        )
    ]
    heads = [2, 2, 4, 4, 4, 7, 7, 4, 4, 12, 11, 12, 8, 4]
    labels = {"tags": tags, "pos": parts, "heads": heads, "deps": dependencies}
    examples = [Example.from_dict(made.make_doc(BOY), labels)]
    optimizer = made.initialize(lambda: examples)
    for _ in range(30):
        made.update(examples, sgd=optimizer)
    path = tmp_path_factory.mktemp("spacy") / "pipeline"
    made.to_disk(path)
    return path


def test_a_spacy_pipeline_tags_alike_in_another_process(pipeline, tags):
    tagger = make_tagger(f"spacy:{pipeline}")
    by_hand = make_tagger(tags)(BOY)
    assert tagger(BOY) == by_hand
    assert pickle.loads(pickle.dumps(tagger))(BOY) == by_hand
    assert tagger(BOY + "  \n").tokens[:14] == by_hand.tokens
    assert tagger("").tokens == ()
    assert tagger.version.endswith("/0.0.0")


def test_pipeline_without_a_parser_is_refused_when_it_is_used(tmp_path):
    spacy = pytest.importorskip("spacy", reason="spaCy is not installed: pip install spacy")
    spacy.blank("en").to_disk(tmp_path / "blank")
    with pytest.raises(ValueError, match="gives no TAG: it has no tagger"):
        make_tagger(f"spacy:{tmp_path / 'blank'}")("a dog")


def test_pipeline_that_is_not_installed_is_named():
    pytest.importorskip("spacy", reason="spaCy is not installed: pip install spacy")
    with pytest.raises(ValueError, match="spacy download en_core_web_xx"):
        make_tagger("spacy:en_core_web_xx")

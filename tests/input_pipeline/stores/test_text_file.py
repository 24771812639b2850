"""Text in every encoding that editors save, wherever a file of texts is read."""

import json

import pytest

from vlc_jax.input_pipeline.benchmarks import published
from vlc_jax.input_pipeline.hard_texts.llm import captions
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import image_identity, json_annotations, prompt_texts
from vlc_jax.input_pipeline.sources.flickr30k import Flickr30kSource
from vlc_jax.input_pipeline.stores import text_file
from vlc_jax.input_pipeline.tokenizers import text_vectors
from vlc_jax.input_pipeline.tokenizers.word_level import WordTokenizer

# U+2028, U+0085 and others end a line for str.splitlines and for nobody else
TEXTS = ["one\u2028line", "caf\u00e9\x85 noir", "a third\x1c"]
ENCODINGS = {
    "plain": lambda text: text.encode(),
    "mark": lambda text: text.encode("utf-8-sig"),
    "windows": lambda text: text.replace("\n", "\r\n").encode("utf-8-sig"),
    "utf-16": lambda text: text.encode("utf-16"),
    "utf-16, big end first": lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
    "utf-16 without a mark": lambda text: text.replace("\n", "\r\n").encode("utf-16-le"),
    "utf-32": lambda text: text.encode("utf-32"),
}


def flickr_captions(path):
    source = Flickr30kSource("all", annotations=path, images=path.parent)
    return list(source[0].captions)


def class_names(path):
    return [*prompt_texts.class_names(path, "ab")]


def templates(path):
    return [*prompt_texts.templates(path)]


def excluded(path):
    return [*image_identity.read_image_list(path)]


def words(path):
    tokenizer = WordTokenizer(4, path=path)
    return [word for word in ("caf\u00e9", "one") if word in tokenizer.vocabulary()]


def published_rows(path):
    origin = published.Origin("choice", ".", (path.name,), ".", "a site", "none")
    return [
        row["text"] for row in published.Files(origin, "a set", path.parent).json_lines(path.name)
    ]


READERS = {  # suffix of the file -> what it holds, reader, expected
    "lines.txt": ("\n".join(TEXTS) + "\n", text_file.lines, TEXTS),
    "names.txt": ("one\ncaf\u00e9", class_names, ["one", "caf\u00e9"]),
    "names.json": ('["one", "two"]', class_names, ["one", "two"]),
    "templates.txt": ("a {}\u2028b\n", templates, ["a {}\u2028b"]),
    "excluded.txt": ("a.jpg\n", excluded, ["file:a.jpg"]),
    "captions.txt": ("\n".join(TEXTS), captions.read, TEXTS),
    "captions.csv": ("caption\n" + "\n".join(TEXTS), captions.read, TEXTS),
    "captions.jsonl": (
        "".join(json.dumps({"caption": text}, ensure_ascii=False) + "\n" for text in TEXTS),
        captions.read,
        TEXTS,
    ),
    "texts.txt": ("\n".join(TEXTS), text_vectors.read_texts, TEXTS),
    "list.json": (json.dumps(TEXTS, ensure_ascii=False), json_annotations.load, TEXTS),
    "rows.jsonl": (
        "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in TEXTS),
        published_rows,
        TEXTS,
    ),
    "words.txt": ("caf\u00e9\none\n", words, ["caf\u00e9", "one"]),
    "a.token": (
        "".join(f"a.jpg#{n}\t{text}\n" for n, text in enumerate(TEXTS)),
        flickr_captions,
        TEXTS,
    ),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_texts_are_the_same_in_every_encoding(tmp_path, name, encoding):
    text, read, expected = READERS[name]
    (tmp_path / "a.jpg").touch()
    path = tmp_path / name
    path.write_bytes(ENCODINGS[encoding](text))
    texts = read(path)
    assert [each.strip() for each in texts] == [each.strip() for each in expected]
    assert not any("\ufeff" in each for each in texts)


def test_another_encoding_is_named(tmp_path):
    (tmp_path / "a.txt").write_bytes("caf\u00e9".encode("latin-1"))
    with pytest.raises(DataError, match=r"a\.txt is not UTF-8: .*; save it as UTF-8"):
        text_file.read(tmp_path / "a.txt")

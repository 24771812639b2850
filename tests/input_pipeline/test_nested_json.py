"""JSON of brackets without end is damaged data, in every file that is no table."""

import pytest

from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import coco, shards, tfds
from vlc_jax.input_pipeline.tokenizers import clip_bpe, text_vectors

READERS = {  # file -> its reader
    "texts_of_captions.jsonl": lambda path: coco._read_lines(path, 1),
    "texts.jsonl": text_vectors.read_texts,
    "tokenizer.json": clip_bpe._read,
    "dataset_info.json": lambda path: tfds._check_format(path.parent),
    shards.MANIFEST: lambda path: shards.read_manifest(path.parent),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[1]"], ids=range(3))
def test_such_a_file_is_named(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises((DataError, ValueError), match=name):
        READERS[name](tmp_path / name)

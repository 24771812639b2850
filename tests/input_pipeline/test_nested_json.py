"""Hostile JSON is damaged data, in every file that is no table."""

import copy
import json

import numpy as np
import pytest

from tests.support import damage
from vlc_jax.input_pipeline.hard_texts.taggers import PrecomputedTagger
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import coco, shards, tfds
from vlc_jax.input_pipeline.tokenizers import clip_bpe, text_vectors

READERS = {  # file -> its reader
    "texts_of_captions.jsonl": lambda path: coco._read_lines(path, 1),
    "texts.jsonl": text_vectors.read_texts,
    "tokenizer.json": clip_bpe._read,
    "dataset_info.json": lambda path: tfds._check_format(path.parent),
    "tags.jsonl": PrecomputedTagger,
    shards.MANIFEST: lambda path: shards.read_manifest(path.parent),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[1]"], ids=range(3))
def test_such_a_file_is_named(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises((DataError, ValueError), match=name):
        READERS[name](tmp_path / name)


SHARD = {"name": "a.array_record", "count": 2, "captions": 2, "bytes": 9, "sha256": "0f"}
DOCUMENT = {
    "format_version": shards.FORMAT_VERSION,
    "complete": True,
    "count": 2,
    "captions": 2,
    "request": {"split": "train", "format": "png"},
    "shards": [SHARD | {"ids": {"name": "a.ids", "bytes": 16, "sha256": "0f"}}],
    "skipped": {},
}


def test_a_damaged_manifest_of_shards_is_refused(tmp_path):
    path = tmp_path / shards.MANIFEST
    for seed in range(30):
        path.write_text(json.dumps(DOCUMENT))
        path.write_bytes(damage.damaged(path, np.random.default_rng(seed)))
        with pytest.raises((DataError, ValueError), match=str(tmp_path)) as caught:
            # the files that a whole manifest names are missing here
            shards.ShardsSource("train", path=tmp_path)
        assert not isinstance(caught.value, UnicodeError)


@pytest.mark.parametrize("name", ["../a.array_record", "/dev/zero", "a\0", "x" * 300])
@pytest.mark.parametrize("of_ids", [False, True])
def test_a_manifest_names_files_of_its_folder(tmp_path, name, of_ids):
    document = copy.deepcopy(DOCUMENT)
    shard = document["shards"][0]
    (shard["ids"] if of_ids else shard)["name"] = name
    (tmp_path / shards.MANIFEST).write_text(json.dumps(document))
    with pytest.raises(DataError, match=rf"{shards.MANIFEST} is damaged: a (file )?name"):
        shards.read_manifest(tmp_path)

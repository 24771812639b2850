"""Sources and tokenizers that configs/default.py does not list get their options from a config."""

import pytest

from tests.support.numbered import Numbered
from vlc_jax.configs import default
from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline.commands import shard_writer
from vlc_jax.input_pipeline.record import Record
from vlc_jax.input_pipeline.sources import SOURCES
from vlc_jax.input_pipeline.tokenizers import TOKENIZERS
from vlc_jax.input_pipeline.tokenizers.byte_level import BytesTokenizer
from vlc_jax.setup import data


class Letters:
    """A source of two records."""

    fingerprint = "letters"

    def __init__(self, split: str, path: str, size: int = 1) -> None:
        self.options = (split, path, size)

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Record:
        raise NotImplementedError


class Prefixed(BytesTokenizer):
    """Bytes, all texts beginning alike."""

    def __init__(self, context_length: int, prefix: str = "") -> None:
        super().__init__(context_length)
        self.prefix = prefix


@pytest.fixture
def config(monkeypatch):
    monkeypatch.setitem(SOURCES, "letters", Letters)
    monkeypatch.setitem(TOKENIZERS, "prefixed", Prefixed)
    config = default.get_config()
    config.input.source, config.text.tokenizer = "letters", "prefixed"
    return config


def test_a_source_that_is_not_listed_gets_its_options(config):
    config.input.source_options = {"path": "x", "size": 3}
    assert data.source_options(config) == {"source": "letters", "path": "x", "size": 3}
    assert data.source(config, "train").options == ("train", "x", 3)


def test_a_tokenizer_that_is_not_listed_gets_its_options(config):
    config.text.tokenizer_options = {"prefix": "a "}
    assert data.make_tokenizer(config).prefix == "a "
    config.text.tokenizer_options = {}
    assert data.make_tokenizer(config).prefix == ""


def test_options_of_a_listed_source_are_added_to_its_fields():
    config = default.get_config()
    config.input.source, config.input.records.path = "records", "a.jsonl"
    config.input.source_options = {"split_column": "part", "holdout": 0.5}
    options = data.source_options(config)
    assert (options["path"], options["split_column"], options["holdout"]) == (
        "a.jsonl",
        "part",
        0.5,
    )


def test_shuffle_and_stage_are_of_training_and_no_options_of_a_benchmark():
    config = default.get_config()
    config.input.source, config.input.shards.path = "shards", "a"
    config.input.shards.stage = "local"
    config.evals = {"retrieval": {}}
    assert data.source_options(config) == {"source": "shards", "path": "a"}
    read = data.benchmarks(config)["retrieval"].reader_options
    assert read == {"source": "shards", "path": "a"}


def test_shuffle_and_stage_reach_the_source_of_training(tmp_path):
    shard_writer.write(Numbered(), tmp_path / "shards", size=8, request={"split": "train"})
    config = default.get_config()
    config.input.source = "shards"
    config.input.shards.update({"path": str(tmp_path / "shards"), "stage": str(tmp_path / "s")})
    config.input.shards.shuffle = "blocks"
    source = data.source(config, "train")
    assert source.shuffle == "blocks"
    assert source[3].id == "r3"
    assert len(list((tmp_path / "s").glob("*.array_record"))) == 1
    for field, value in (("shuffle", "local"), ("stage_gb", -1.0), ("stage_gb", 1e-9)):
        wrong = config.copy_and_resolve_references()
        wrong.input.shards.update({"shuffle": "blocks", field: value})
        with pytest.raises(UsageError, match=field):
            data.source(wrong, "train")


def test_an_option_that_the_source_or_tokenizer_has_not_is_refused(config):
    config.input.source_options = {"path": "x", "sise": 3}
    with pytest.raises(UsageError, match=r"no option 'sise'.*did you mean 'size'"):
        data.source(config, "train")
    config.text.tokenizer_options = {"prefx": "a"}
    with pytest.raises(UsageError, match=r"no option 'prefx'.*did you mean 'prefix'"):
        data.make_tokenizer(config)

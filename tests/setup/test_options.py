"""Options of sources and tokenizers: how they are set, and which of them are refused."""

from functools import partial

import pytest

from tests.support.numbered import Numbered
from vlc_jax.configs import default
from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline.commands import shard_writer
from vlc_jax.input_pipeline.record import Record
from vlc_jax.input_pipeline.sources import SOURCES
from vlc_jax.input_pipeline.tokenizers import TOKENIZERS
from vlc_jax.input_pipeline.tokenizers.byte_level import BytesTokenizer
from vlc_jax.setup import command_line, data


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


def test_options_of_training_are_no_options_of_a_benchmark():
    config = default.get_config()
    config.input.source = "shards"
    config.input.source_options = {"path": "a", "stage": "local", "exclude": "leaks.txt"}
    config.evals = {"retrieval": {}}
    read = data.benchmarks(config)["retrieval"].reader_options
    assert read == data.source_options(config) == {"source": "shards", "path": "a"}
    training = data.source_options(config, is_training=True)
    assert training == {"source": "shards", **config.input.source_options}


@pytest.mark.parametrize("flag", [["--config.steps=7"], ["--config.steps", "7"]])
def test_a_duration_of_the_command_line_replaces_the_configs(flag):
    config = command_line.load(["--config", "configs/pretrain/clip_b32.py", *flag])
    assert (config.steps, config.epochs, config.examples) == (7, None, None)


def test_training_on_coco_reads_restval_too_unless_told_otherwise():
    config = default.get_config()
    config.input.source = "coco"
    assert data.source_options(config)["train_split"] == "train+restval"
    config.input.source_options = {"train_split": "train"}
    assert data.source_options(config)["train_split"] == "train"


def test_shuffle_and_stage_reach_the_source_of_training(tmp_path):
    shard_writer.write(Numbered(), tmp_path / "shards", size=8, split="train")
    config = default.get_config()
    config.input.source = "shards"
    options = {"path": str(tmp_path / "shards"), "stage": str(tmp_path / "s"), "shuffle": "blocks"}
    config.input.source_options = options
    source = data.source(config, "train")
    assert source.shuffle == "blocks"
    assert source[3].id == "r3"
    assert len(list((tmp_path / "s").glob("*.array_record"))) == 1
    for field, value in (("shuffle", "local"), ("stage_gb", -1.0), ("stage_gb", 1e-9)):
        config.input.source_options = options | {field: value}
        with pytest.raises(UsageError, match=field):
            data.source(config, "train")


@pytest.mark.parametrize(
    ("group", "options", "message"),
    [
        (
            "source_options",
            {"path": "x", "sise": 3},
            "unknown option of .*'sise'.*mean 'size'.*known:",
        ),
        ("source_options", {"path": 3}, "option 'path' is a text; got 3, int"),
        ("source_options", {"path": "x", "size": True}, "'size' is an integer; got True"),
        ("tokenizer_options", {"prefx": "a"}, "unknown option of .*'prefx'.*mean 'prefix'.*known:"),
        ("tokenizer_options", {"prefix": 1}, "option 'prefix' is a text; got 1, int"),
    ],
)
def test_an_unknown_option_or_another_type_is_refused(config, group, options, message):
    config.input.source_options = {"path": "x"}
    side = config.input if group == "source_options" else config.text
    side[group] = options
    with pytest.raises(UsageError, match=message):
        data.check_options(config)  # as every mode of training and planning does first
    make = data.make_tokenizer if side is config.text else partial(data.source, split="train")
    with pytest.raises(UsageError, match=message):
        make(config)


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        (["size=a=b.jsonl"], "a=b.jsonl"),
        (["size", "3"], 3),
        (["size=true"], True),
        (["size=none"], "none"),
        (["size=(1, 2)"], (1, 2)),
    ],
)
def test_a_flag_sets_one_option_beside_those_of_the_config(flag, value):
    config = default.get_config()
    config.input.source_options = {"path": "x"}
    group = "--config.input.source_options."
    words = ["vlc", group + flag[0], *flag[1:], "--config.steps=3", f"{group}positives.swap=a.json"]
    rest, options = command_line.split_options([*words, "--config.model.head.rope=feature_1d"])
    assert rest == ["vlc", "--config.steps=3"]
    for option in options:
        command_line.set_option(config, *option)
    expected = {"path": "x", "size": value, "positives": {"swap": "a.json"}}
    assert config.input.source_options.to_dict() == expected
    assert config.model.head.to_dict() == {"rope": "feature_1d"}
    assert config.is_locked


def test_a_source_without_a_needed_option_is_refused_when_it_is_opened(config):
    data.check_options(config)  # --mode plan opens nothing
    with pytest.raises(UsageError, match="source 'letters' needs the option 'path'"):
        data.source(config, "train")

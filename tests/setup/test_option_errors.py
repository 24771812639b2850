"""Wrong options of sources and tokenizers, and unusable conversations, have one-line errors."""

import pytest

from vlc_jax.configs import default
from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline.record import DataError, read_caption
from vlc_jax.setup import command_line, data


@pytest.mark.parametrize(
    ("field", "option"), [("input.source", "split"), ("text.tokenizer", "context_length")]
)
def test_an_argument_of_the_run_is_no_option(field, option):
    config = default.get_config()
    command_line.set_option(config, f"{field}_options", option, "1")
    with pytest.raises(UsageError, match=option):
        data.check_options(config)


def test_values_of_another_type():
    config = default.get_config()
    group = "input.source_options"
    command_line.set_option(config, group, "path", "x")
    command_line.set_option(config, group, "path", "2024")
    assert config.input.source_options.path == "2024"
    command_line.set_option(config, group, "path", "None")
    assert config.input.source_options.path is None
    command_line.set_option(config, group, "holdout", "0.5")
    with pytest.raises(UsageError, match=r"source_options\.holdout needs float; got 'abc'"):
        command_line.set_option(config, group, "holdout", "abc")
    with pytest.raises(UsageError, match=r"path\.x=y: 'path' has no options"):
        command_line.set_option(config, group, "path.x", "y")


def error_of(argv, capsys):
    """The line that an invalid command line ends with."""
    with pytest.raises(SystemExit, match="2"):
        command_line.parse_flags(["vlc", *argv]) and command_line.config()
    (line,) = capsys.readouterr().err.splitlines()
    return line.removeprefix("Usage: ")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of ml_collections
@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("root:x:0:0:root:/root", "it is no config file: line 1: invalid syntax"),
        ("def get_config():\n    import nothing_here", "line 2: ModuleNotFoundError: No module"),
        ("def get_config():\n    return {}['a']", "line 2: KeyError: 'a'"),
        ("def get_config():\n    raise ValueError('data is one\\nof x')", ": data is one of x"),
    ],
)
def test_an_error_of_a_config_file_names_the_file_and_its_line(tmp_path, capsys, source, words):
    file = tmp_path / "mine.py"
    file.write_text(source)
    line = error_of(["--config", str(file)], capsys)
    assert line.startswith(f"--config {file}: ")
    assert words in line


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of ml_collections
def test_an_error_of_our_configs_is_whole(capsys, tmp_path):
    start = "--config records:path=x.jsonl,init_from="
    line = error_of(f"{start}{tmp_path}/none".split(), capsys)
    end = "name the workdir of a run; published weights: --config finetune:weights={},data=TABLE"
    folder = f"{tmp_path}/none"
    assert line == f"{start}{folder}: {folder} does not exist: {end.format(folder)}"
    line = error_of(f"{start}{tmp_path}".split(), capsys)
    assert line.endswith(f"{tmp_path} has no config.json: {end.format(tmp_path)}")
    (tmp_path / "config.json").write_text("[]")
    assert f"{tmp_path}/config.json is not the config of a run" in error_of(
        f"{start}{tmp_path}".split(), capsys
    )
    both = "--config=configs/eval/all.py:run=runs/a,weights=b.pt,sets=cola"
    assert "run=runs/a has weights of its own" in error_of([both], capsys)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of ml_collections
def test_a_loss_that_the_config_lacks_says_how_losses_are_set(capsys):
    argv = ["--config", "configs/scenes/clip.py", "--config.losses.negclip.weight=1.0"]
    line = error_of(argv, capsys)
    assert "unknown config field 'negclip'; config.losses is set whole: " in line
    assert "'negclip': {'weight': 1.0}}\"" in line


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of ml_collections
def test_an_option_of_a_benchmark_adds_the_benchmark():
    flag = "--config.evals.scenes_retrieval.count=4"
    config = command_line.load(["--config", "configs/records.py:path=x.jsonl", flag])
    evals = config.evals.to_dict()
    assert evals == {"retrieval": {"split": "validation"}, "scenes_retrieval": {"count": 4}}


@pytest.mark.parametrize(
    ("reader", "options", "message"),
    [
        ("eqben_full", {"light": "no"}, "'light' is True or False; got 'no'"),
        ("crepe_productivity", {"complexities": ["4"]}, "'complexities' is a list of integers"),
        ("valse", {"subsets": "plurals"}, r"""a list of texts; .*: write \["plurals"\], in"""),
        ("valse", {"subset": ["plurals"]}, "unknown option .* 'subset'; did you mean 'subsets'"),
        ("valse", {"ties": "half"}, r"unknown option of valse 'ties'; did you mean 'tie'"),
    ],
)
def test_an_option_of_a_benchmark_is_named_with_its_cure(reader, options, message, tmp_path):
    options = {"reader": reader, "root": str(tmp_path), **options}
    setup = data.benchmark("config.evals.mine", "mine", options)
    with pytest.raises(UsageError, match=message):
        setup.read()


def test_a_conversation_without_turns():
    with pytest.raises(DataError, match="is a conversation"):
        read_caption('{"text_only": [["a", "b"]], "text_only": []}')

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


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of ml_collections
@pytest.mark.parametrize(
    ("flag", "place"),
    [("plan.topology=v5e:4x4", "--plan_topology"), ("platform=cpu", "JAX_PLATFORMS")],
)
def test_a_field_of_earlier_versions_has_another_place(flag, place, capsys):
    with pytest.raises(SystemExit):
        command_line.parse_flags(["vlc", "--config", "configs/scenes/clip.py", f"--config.{flag}"])
    assert place in capsys.readouterr().err


def test_a_conversation_without_turns():
    with pytest.raises(DataError, match="is a conversation"):
        read_caption('{"text_only": [["a", "b"]], "text_only": []}')

"""Sections of config files: what is written is read, and all else is refused by file and key."""

import pytest

from vlc_jax.errors import WeightsError
from vlc_jax.weights import (
    gguf,
    huggingface_config,
    llava_sizes,
    lm_config,
    open_clip_config,
    sections,
)
from vlc_jax.weights.sections import Key, Section

MODULES = (huggingface_config, llava_sizes, lm_config, open_clip_config)
# all sections of the library, by the name of their table
SECTIONS = {
    **{
        f"{module.__name__.rpartition('.')[2]}{name}": value
        for module in MODULES
        for name, value in vars(module).items()
        if isinstance(value, Section)
    },
    "gguf": Section(gguf._CONFIG),
    **lm_config.FAMILIES,
    **{f"rope {kind}": section for kind, section in lm_config._ROPES.items()},
    **{f"{kind} beside": family.top for kind, family in llava_sizes.FAMILIES.items()},
    **{
        f"{kind} {part}": section
        for kind, towers in huggingface_config.TOWERS.items()
        for part, section in zip(("image", "text"), towers, strict=True)
    },
}
REQUIRED = {str: "roberta-base", int: 8, float: 2.0, tuple: (1.0, 2.0)}
HOSTILE = ([], {}, [[]], "x" * 5_000, "-1", -1.5, 2**40, 10**30, float("nan"), float("inf"))


def test_the_longest_text_is_that_of_positions_or_of_training():
    config = {"max_position_embeddings": 8, "max_seq_len": 9}
    lengths = {lm_config.positions(name).read(config, "x") for name in lm_config.FAMILIES}
    assert (lengths, lm_config.positions("mpt").read(config, "x")) == ({8}, 9)


def written(section):
    """The smallest section that is read: keys that may not be left out."""
    keys = section.fields.values()
    return {key.name: REQUIRED[key.default] for key in keys if isinstance(key.default, type)}


@pytest.mark.parametrize("name", SECTIONS)
def test_what_is_written_is_read(name):
    section = SECTIONS[name]
    fields = section.read(written(section), "f")
    assert fields.keys() == {*section.fields, *section.constant}
    assert section.read(section.write(fields), "f") == fields


@pytest.mark.parametrize("name", SECTIONS)
def test_another_value_of_a_fixed_key_is_refused(name):
    section = SECTIONS[name]
    for key in section.fixed:
        for value in ("another", 0.375, [1]):
            with pytest.raises(WeightsError, match=f"^f: {key} is .*; only .* is supported, and"):
                section.read({**written(section), key: value}, "f")
        section.read({**written(section), key: None}, "f")


@pytest.mark.parametrize("name", SECTIONS)
def test_hostile_values_are_refused_or_read_as_their_kind(name, caplog):
    section = SECTIONS[name]
    plain = section.read(written(section), "f")
    for field, key in section.fields.items():
        messages = []
        for value in HOSTILE:
            try:
                fields = section.read({**written(section), key.name: value}, "f")
            except WeightsError as error:
                messages.append(str(error))
            else:
                assert type(fields[field]) is type(plain[field])
        # but a list without numbers, a text and the negative number where the kind has them
        assert len(messages) >= len(HOSTILE) - 2
        for message in messages:
            assert message.startswith(f"f: {key.name} is ")
            assert len(message) < 1_000
            assert "\n" not in message
    for content in ([], "x", 5):
        with pytest.raises(WeightsError, match=r"^f is .*; only a JSON object"):
            section.read(content, "f")
    assert not caplog.text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((Key("a", 3), value) for value in (True, 0)),
        *((Key("a", 1.5), value) for value in (True, -0.1)),
        *((Key("a", True), value) for value in (1, "true")),
        *((Key("a", -2, range(-5, 0)), value) for value in ([-2], -6)),
        *((Key("a", "b", {"b": "c"}), value) for value in (["b"], "c")),
    ],
)
def test_a_value_of_another_kind_is_refused(key, value):
    with pytest.raises(WeightsError, match=r"^f: a is .*; only .* is supported"):
        key.read({"a": value}, "f")


def test_a_second_name_and_a_default_are_read():
    key = Key("a", "b", {"b": "c", "d": "e", "f": "e"}, "old")
    assert [key.read(x, "f") for x in ({}, {"a": None}, {"old": "d"}, {"a": "b", "old": "d"})] == [
        *("c", "c", "e", "c")
    ]
    assert [key.write(x) for x in ("c", "e")] == ["b", "d"]
    with pytest.raises(WeightsError, match=r"^f lacks a"):
        Key("a", int).read({}, "f")
    with pytest.raises(WeightsError, match="a is 5; only a square"):
        sections.square_root(5, "a", "f")

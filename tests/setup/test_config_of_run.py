"""The config of a run, read back: other fields, fields of other types, folders elsewhere."""

import json

import pytest

from vlc_jax.configs import default, hp_hn
from vlc_jax.errors import UsageError
from vlc_jax.run.workdir import EVAL_FIELDS, Workdir, saved_config
from vlc_jax.setup import config_of_run, resolve


@pytest.fixture
def config():
    """As in a config.json."""
    return json.loads(json.dumps(hp_hn.get_config().to_dict()))


@pytest.fixture
def write(tmp_path):
    """Writes a run with one saved state and this config; returns its folder."""

    def write(config, **env):
        (tmp_path / "checkpoints/4").mkdir(parents=True)
        (tmp_path / "config.json").write_text(json.dumps(config))
        (tmp_path / "env.json").write_text(json.dumps(env))
        return tmp_path

    return write


def leaves(config, prefix=()):
    for key, value in config.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*prefix, key))
        yield (*prefix, key)


def part(config, path):
    for key in path:
        config = config[key]
    return config


def test_a_field_of_another_type_is_refused_in_one_line_that_names_it(config, tmp_path):
    """Each field of a config, with values of all types of JSON."""
    default_config, others = default.get_config(), ([1], {"a": 1}, "text", 5, True, 0.5)
    text, checked = json.dumps(default_config.to_dict()), 0
    for path in leaves(default_config.to_dict()):
        if path[0] in ("losses", "pretrain") or "generators" in path[:-1]:
            continue
        kind = part(default_config, path[:-1]).get_type(path[-1])
        wrong = [other for other in others if not config_of_run._fits(other, kind)]
        # one for each field, of all types in turn
        checked += 1
        for other in [wrong[checked % len(wrong)]]:
            changed = json.loads(text)
            part(changed, path[:-1])[path[-1]] = other
            with pytest.raises(UsageError, match=rf"c.json: {'.'.join(path)} must be") as caught:
                config_of_run.check(changed, tmp_path / "c.json")
            assert len(str(caught.value).splitlines()) == 1
    assert checked > 100
    assert config_of_run._fits(1, float)
    assert not config_of_run._fits(True, int)


@pytest.mark.parametrize(
    "field", ["plan", "lora", "text.lengths", "pretrain.model.text_tower", "a"]
)
def test_a_run_of_another_version_names_the_commit_that_reads_it(config, write, field):
    *parents, name = field.split(".")
    inner = part(config, parents)
    if inner.pop(name, None) is None:
        inner[name] = {}
    folder = write(config, commit="0123abc-dirty")
    run = Workdir(folder)
    for read in (
        lambda: config_of_run.get_config(str(folder)),
        lambda: resolve(saved_config(folder), "weights"),
        lambda: run.check_config(config, False, EVAL_FIELDS, config_of_run.check),
    ):
        with pytest.raises(
            UsageError, match=rf"'{field.removeprefix('pretrain.')}'.*git checkout 0123abc\)"
        ) as caught:
            read()
        assert len(str(caught.value).splitlines()) == 1
    run.close()


def test_a_run_of_a_wheel_names_its_version(config, write):
    del config["steps"]
    folder = write(config, commit="", versions={"vlc_jax": "0.1.9"})
    with pytest.raises(UsageError, match=r"that wrote it \(vlc_jax 0\.1\.9\)"):
        config_of_run.get_config(str(folder))


@pytest.mark.parametrize("content", [{}, {"steps": 1}, {"a": []}])
def test_an_object_that_is_no_config_is_refused(write, content):
    with pytest.raises(UsageError, match="is not the config of a run"):
        config_of_run.get_config(str(write(content)))


@pytest.mark.parametrize("is_inside", [True, False])
def test_a_cache_elsewhere_is_not_taken_from_a_config_file(config, write, capsys, is_inside):
    folder = write(config)
    cache = str(folder / "cache" if is_inside else folder.parent / "elsewhere")
    config["eval"]["cache"] = cache
    (folder / "config.json").write_text(json.dumps(config))
    read = config_of_run.get_config(str(folder))
    assert read.eval.cache == (cache if is_inside else None)
    note = capsys.readouterr().err
    assert note == "" if is_inside else f"the eval.cache {cache!r}" in note
    read.eval.cache = "given"  # as --config.eval.cache

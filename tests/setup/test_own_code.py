"""Names of a table that other code gives: dotted names and entry points."""

import sys

import pytest

from tests.support import plugins
from vlc_jax import errors, losses
from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline import lookup, sources
from vlc_jax.setup import catalogue, command_line

FILES = {  # of the package `own`
    "good.py": "NUMBER, TEXT = 7, 'seven'\n",
    "broken.py": "NUMBER = 1\nimport nothing_of_this_name\n",
    "ends.py": "import sys\nsys.exit('usage')\n",
    "wrong.py": "NUMBER = = 1\n",
    "plugin.py": "LOSSES = {'number': 7, 'text': 'x'}\n",
    "clash.py": "LOSSES = {'one': 7}\n",
    "empty.py": "LOSS = {}\n",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of `own`, on the path of modules; what is known of other code is forgotten."""
    (tmp_path / "own").mkdir()
    for name, text in FILES.items():
        (tmp_path / "own" / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setattr(errors, "_written", set())
    monkeypatch.setattr(errors, "_folders", [])
    monkeypatch.setattr(errors, "packages_in_use", set())
    errors.plugins.cache_clear()
    yield tmp_path
    errors.plugins.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "own"]:
        del sys.modules[name]


def table():
    return errors.Table("LOSSES", {"one": 1}, "a number", lambda x: isinstance(x, int))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own.good.TEXT", "it must be a number; got 'seven'"),
        ("own.good.NUMBR", r"own/good\.py has no 'NUMBR' \(did you mean 'NUMBER'\?\)"),
        ("own.god.NUMBER", "there is no module own.god in .* or the installed packages$"),
        ("owm.good.NUMBER", "there is no module owm in"),
        ("own.broken.NUMBER", r"cannot import own.broken: .*own/broken\.py:2: ModuleNotFoundError"),
        ("own.ends.NUMBER", r"cannot import own.ends: .*own/ends\.py:2: SystemExit: usage"),
        ("own.wrong.NUMBER", r"cannot import own.wrong: .*own/wrong\.py:1: SyntaxError"),
    ],
)
def test_a_dotted_name_that_is_not_there(folder, name, message):
    errors.allow(f"config.losses = {{'{name}': ...}}")
    for known in (
        lambda: errors.known("loss", name, table()),
        lambda: lookup.check("loss", table(), name, {}),
    ):
        with pytest.raises((UsageError, ValueError), match=f"^loss '{name}': .*{message}"):
            known()


@pytest.mark.parametrize("way", ["written", "typed", "imported", "trusted", "plugin"])
def test_only_the_user_lets_a_dotted_name_be_imported(folder, way, monkeypatch):
    with pytest.raises(UsageError, match=r"import no code.* variable VLC_PLUGINS=own"):
        errors.known("loss", "own.good.NUMBER", table())
    assert "own.good" not in sys.modules
    if way == "written":
        errors.allow("own.good.NUMBER")
        errors.allow("runs/own.god.NUMBER own.god.NUMBER/checkpoints")  # paths name no code
        with pytest.raises(UsageError, match="import no code"):
            errors.known("loss", "own.god.NUMBER", table())
    elif way == "typed":
        monkeypatch.setattr(sys, "argv", ["vlc-jax", "--config.losses={'own.good.NUMBER': {}}"])
    elif way == "imported":
        sys.modules["own.good"] = type(sys)("own.good")
        sys.modules["own.good"].NUMBER = 7
    elif way == "trusted":
        monkeypatch.setenv("VLC_PLUGINS", "other,own")
    else:
        plugins.install(folder, "own.plugin")
        errors.plugins.cache_clear()
    rows = table()
    assert rows[errors.known("loss", "own.good.NUMBER", rows)] == 7


def test_a_plugin_adds_its_rows_and_is_listed(folder, caplog):
    plugins.install(folder, "own.plugin")
    rows = table()
    assert "number" in rows
    assert (rows["number"], "own" in errors.packages_in_use) == (7, True)
    with pytest.raises(UsageError, match="loss 'text': it must be a number; got 'x'"):
        errors.known("loss", "text", rows)
    assert [record.getMessage() for record in caplog.records] == [
        "text of own 0.1: it must be a number; got 'x'"
    ]
    assert "Plug-in own 0.1 (own.plugin): LOSSES: number, text" in catalogue.listing()


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("broken", r"own/broken\.py:2: ModuleNotFoundError: No module named 'nothing_"),
        ("empty", "own.empty has dictionaries, some of LOSSES, "),
        ("absent", "No module named 'own.absent'"),
    ],
)
def test_a_broken_plugin_is_one_warning_and_in_the_error(folder, caplog, module, message):
    plugins.install(folder, f"own.{module}")
    with pytest.raises(UsageError, match=f"known: one; .*{message}"):
        errors.known("loss", "number", table())
    assert "one" in table()
    (record,) = caplog.records
    assert record.getMessage().startswith("the plug-in own 0.1 is left out: ")
    with pytest.raises(ValueError, match=message):
        lookup.check("source", sources.SOURCES, "mine", {})


def test_a_name_of_two_packages_is_refused(folder):
    plugins.install(folder, "own.clash")
    with pytest.raises(UsageError, match=r"'one' is of vlc_jax and of the plug-in own 0\.1"):
        errors.known("loss", "one", table())


@pytest.mark.parametrize("split", [True, False])
def test_dotted_keys_of_the_command_line_become_options(split):
    words = ["--config.losses", "{'one': {'weight': 1}, 'own.good.margin': {'weight': 2}}"]
    words = words if split else ["=".join(words)]
    changed = command_line.named_entries(["x", *words])
    entries = "{'one': {'weight': 1}, 'margin': {'loss': 'own.good.margin', 'weight': 2}}"
    assert "=".join(changed[1:]) == f"--config.losses={entries}"
    with pytest.raises(UsageError, match=r"two entries end in one name; got own\.a, other\.a"):
        command_line.named_entries(["--config.evals={'own.a': {}, 'other.a': {}}"])


def test_parameters_of_a_formula_are_fields_of_outputs():
    row = losses.LOSSES._row("m", lambda scores, own_negative_scores, *, gap=1: scores)
    assert (row.needs, row.contrasts_all) == (("negative",), ())
    assert row.mean_over == "examples_with_hard_texts"
    with pytest.raises(UsageError, match="parameter 'score'; did you mean 'scores'"):
        losses.LOSSES._row("m", lambda score: score)

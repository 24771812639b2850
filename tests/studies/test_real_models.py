"""Parts of the study with published models, which are extras."""

import pytest

from studies import real_models, smollm, study, study_plan
from vlc_jax.models import lm

NO_PACKAGE = "no_package_of_this_name"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The folder of both packages, without weights."""
    folder = tmp_path / "package"
    folder.mkdir()
    monkeypatch.setattr(real_models, "_folder", lambda package: folder)
    return folder


def test_a_part_without_its_package_is_skipped_with_one_line(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(real_models, "PACKAGES", {"l": NO_PACKAGE, "m": NO_PACKAGE})
    monkeypatch.setattr(study, "complete", lambda todo, *others, **more: todo)
    monkeypatch.setattr("sys.argv", ["study.py", "--out", str(tmp_path), "--parts", "alm"])
    todo = study.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all(NO_PACKAGE in line and line.endswith("skipped") for line in lines)
    assert {run.name for run in todo} == {run.name for run in study_plan.plan("a", 3)}


def test_a_missing_package_is_named():
    with pytest.raises(ValueError, match=NO_PACKAGE):
        real_models._installed(NO_PACKAGE)


@pytest.mark.parametrize("part", real_models.PACKAGES)
def test_runs_come_behind_what_they_need(part):
    plan, before = study_plan.plan(part, 2), set()
    for run in plan:
        assert {*run.needed} <= before
        before.add(run.name)


def test_commands_name_the_installed_files(installed, tmp_path):
    out = tmp_path / "out"
    commands = {run.name: study.command(run, out, []) for run in study_plan.plan("lm", 1)}
    sentences = commands["minilm_vectors-0"]
    assert sentences[1].endswith("studies/minilm.py")
    vectors = out / "minilm_vectors-0" / study.VECTORS
    assert f"--config.text.tokenizer_options.path={vectors}" in commands["minilm_pacl_1d-0"]
    stage_2 = " ".join(commands["smollm-0"])
    arguments = "stage=2,steps=200,batch=32,count=200,split=test"
    assert f"studies/smollm.py:{arguments},decoder={installed / real_models.GGUF}" in stage_2
    assert f"--config.init_from={out / 'smollm_stage1-0'}" in stage_2


def test_stages_train_what_llavas_do():
    """Stage 1 loads the decoder and freezes it, stage 2 adapts it."""
    first, second = (smollm.get_config(f"stage={stage},decoder=a.gguf") for stage in (1, 2))
    assert first.head_from == "a.gguf"
    assert "head/lm" in first.frozen
    assert second.head_from is None
    assert second.lora.targets
    decoder = lm.from_sizes(smollm.SIZES)
    assert decoder.width // decoder.heads == 64
    asked = [each for each in second.evals.values() if "vqascore" in each]
    assert asked
    assert all(each["vqascore"]["answer"] == "yes" for each in asked)

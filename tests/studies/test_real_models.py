"""Parts of the study with published models, which are extras."""

import pytest

from studies import smollm, study, study_plan
from vlc_jax.models import lm


def test_a_missing_package_is_named():
    with pytest.raises(ValueError, match="no_package_of_this_name is not installed: pip install"):
        study._folder("no_package_of_this_name")


def test_commands_name_the_installed_files(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "_folder", lambda package: tmp_path / package)
    out = tmp_path / "out"
    commands = {run.name: study.command(run, out, []) for run in study_plan.plan("lm", 1)}
    sentences, vectors = commands["minilm_vectors-0"], out / "minilm_vectors-0" / study.VECTORS
    assert sentences[2] == "vlc_jax.tools.embed_text"
    assert sentences[sentences.index("--model") + 1] == str(out / study.MINILM)
    assert sentences[sentences.index("--out") + 1] == str(vectors)
    assert f"--config.text.tokenizer_options.path={vectors}" in commands["minilm_pacl_1d-0"]
    stage_2 = " ".join(commands["smollm-0"])
    arguments = "stage=2,steps=200,batch=32,count=200,split=test"
    assert f"smollm.py:{arguments},decoder={tmp_path / study.SMOLLM / study.GGUF}" in stage_2
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

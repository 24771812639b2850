"""Parts of the study with a published model, which is an extra."""

import pytest

from studies import study, study_plan


def test_a_missing_package_is_named():
    with pytest.raises(ValueError, match="no_package_of_this_name is not installed: pip install"):
        study._folder("no_package_of_this_name")


def test_commands_name_the_installed_files(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "_folder", lambda package: tmp_path / package)
    out = tmp_path / "out"
    commands = {run.name: study.command(run, out, []) for run in study_plan.plan("l", 1)}
    sentences, vectors = commands["minilm_vectors-0"], out / "minilm_vectors-0" / study.VECTORS
    assert sentences[2] == "vlc_jax.tools.embed_text"
    assert sentences[sentences.index("--model") + 1] == str(out / study.MINILM)
    assert sentences[sentences.index("--out") + 1] == str(vectors)
    assert f"--config.text.tokenizer_options.path={vectors}" in commands["minilm_pacl_1d-0"]

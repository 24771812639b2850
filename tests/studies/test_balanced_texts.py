"""Part k of the study: permuted images and balanced negatives."""

import json
from types import SimpleNamespace

import numpy as np

from studies import balanced_texts, study, study_columns, study_plan
from vlc_jax.configs import ce_clip, hn
from vlc_jax.input_pipeline.hard_texts import sampling
from vlc_jax.input_pipeline.loader.examples import Examples
from vlc_jax.setup import data

ROWS = 256


def small_config():
    config = hn.get_config("steps=4")
    config.batch_size, config.seed, config.input.scenes.count = ROWS // 4, 3, 2 * ROWS
    return config


def examples(config, negatives):
    source = data.source(config, "train")
    made = Examples(source, balanced_texts.NoPixels(), config.seed, 1, {}, negatives=negatives)
    return [made.group(number, {})[0] for number in range(ROWS)]


def test_a_balanced_run_lacks_some_negatives_of_the_run(tmp_path, monkeypatch):
    config = small_config()
    flags = SimpleNamespace(out=tmp_path, balance=0.6, keep=0.0)
    monkeypatch.setattr(balanced_texts, "FLAGS", flags)
    monkeypatch.setattr(balanced_texts.command_line, "config", lambda: config)
    balanced_texts.write()
    options = {"from_table": {"path": str(tmp_path / study.TEXTS)}}
    table = sampling.make_hard_texts(
        "negatives", count=1, generators={"from_table": 1.0}, options=options
    )
    whole, kept = examples(config, data.hard_texts(config)["negatives"]), examples(config, table)
    assert [row.caption for row in kept] == [row.caption for row in whole]
    assert all(row.negatives in ([], all_.negatives)
               for row, all_ in zip(kept, whole, strict=True))  # fmt: skip
    has, had = (np.mean([row.negatives != [] for row in rows]) for rows in (kept, whole))
    result = json.loads((tmp_path / "evals" / "texts" / "0.json").read_text())["metrics"]
    assert result["has_negative"]["value"] == had
    assert np.isclose(result["kept"]["value"], has / had)
    assert 0.2 < has < 0.9 * had
    assert result["separability"]["value"] < result["separability_drawn"]["value"] - 0.05
    flags.out, flags.keep = tmp_path / "random", 0.5
    balanced_texts.write()
    control = json.loads((flags.out / "evals" / "texts" / "0.json").read_text())["metrics"]
    assert abs(control["kept"]["value"] - 0.5) < 0.1
    assert abs(control["separability"]["value"] - control["separability_drawn"]["value"]) < 0.1


def test_filtered_negatives_of_a_caption_keep_their_places(tmp_path, monkeypatch):
    config = ce_clip.get_config("steps=4")
    config.batch_size, config.input.scenes.count = ROWS // 4, 2 * ROWS
    monkeypatch.setattr(balanced_texts, "FLAGS", SimpleNamespace(out=tmp_path, balance=0, keep=0.5))
    monkeypatch.setattr(balanced_texts.command_line, "config", lambda: config)
    balanced_texts.write()
    (run,) = (run for run in study_plan.plan(["f"], 1) if run.name == "ce_clip_balanced_52-0")
    names = [f"from_table:{kind}" for kind in run.kinds]
    options = {name: {"path": str(tmp_path / study.TEXTS)} for name in names}
    shares = dict.fromkeys(names, 1.0)
    table = sampling.make_hard_texts(
        "negatives", count=len(names), generators=shares, options=options, fallback="one_each"
    )
    whole, kept = examples(config, data.hard_texts(config)["negatives"]), examples(config, table)
    places = [(row.negatives, all_.negatives) for row, all_ in zip(kept, whole, strict=True)]
    assert all(
        mine in ("", its) for row, all_ in places for mine, its in zip(row, all_, strict=True)
    )
    # of each kind about a half, and not all or none of a caption
    shares_kept = [
        np.mean([row[k] != "" for row, all_ in places if all_[k]]) for k in range(len(names))
    ]
    assert np.all(np.abs(np.array(shares_kept) - 0.5) < 0.12)
    assert len({tuple(text != "" for text in row) for row, _ in places}) == 2 ** len(names)
    words = study.command(run, tmp_path, ())
    assert f"--config.input.negatives.generators={shares}" in words
    assert "--config.input.negatives.fallback=one_each" in words


def test_every_run_of_part_k_has_its_blind_control():
    runs = {run.name: run for run in study_plan.runs("k")}
    assert all(study_columns.label(name) != name for name, run in runs.items() if run.base)
    for name in ("hn", "hp_hn", "negclip", "hn_balanced_52"):
        permuted = runs[f"{name}_permuted"]
        assert permuted == runs[name]._replace(name=permuted.name, flags=(study_plan.PERMUTED,))
        control, _ = study_columns.CONTROLS[name.removesuffix("_balanced_52")]
        assert {control, f"{control}_permuted"} <= {*runs} - {name}


def test_a_balanced_run_reads_the_texts_of_its_seed_alone(tmp_path):
    runs = {run.name: run for run in study_plan.plan("k", 3)}
    run = runs["hp_hn_balanced_52_permuted-2"]
    assert run.needed == ["clip-2", "texts_52-2"]
    words = study.command(run, tmp_path, ())
    path = str(tmp_path / "texts_52-2" / study.TEXTS)
    assert f"--config.input.negatives.options={ {'from_table': {'path': path}} }" in words
    assert "--config.input.negatives.generators={'from_table': 1.0}" in words
    assert "--config.input.source_options.images=permuted" in words
    words = study.command(runs["texts_52-2"], tmp_path, ())
    assert "studies.balanced_texts" in words
    assert "--balance=0.52" in words

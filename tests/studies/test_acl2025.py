"""The sweep of the ACL 2025 tables: its rows, its commands, its table, a shrunken part of it."""

import importlib
import json
import shutil

import pytest

from studies import acl2025, study, study_results
from tests.support import helpers

GIVEN = {
    "clip": "weights=a.pt,path=shards",
    "siglip": "weights=folder,path=shards",
    "eva": "weights=e.pt,path=shards",
    "eva_e": "weights=e14.safetensors,path=shards",
    "vectors": "texts.npy",
}


def run(*words):
    return helpers.python("studies/acl2025.py", *words)


def config_of(run):
    name, _, arguments = run.config.partition(":")
    return importlib.import_module(f"vlc_jax.configs.{name.replace('/', '.')}").get_config(
        arguments
    )


def test_every_row_that_is_trained_is_a_config_at_both_sizes():
    trained = [row for row in acl2025.ROWS if row.config]
    large = acl2025.at_full_size(acl2025.ROWS, GIVEN)
    assert [run.name for run in large] == [row.name for row in trained]
    small = acl2025.miniature(acl2025.ROWS, "clip", "texts.npy")[1:]
    of_clip = [row for row in trained if acl2025.family(row) == "clip"]
    assert [run.name.removesuffix("-of-clip") for run in small] == [row.name for row in of_clip]
    names = [row.name for row in of_clip]
    for row, at_scale, in_miniature in zip(
        of_clip, (run for run in large if run.name in names), small, strict=True
    ):
        one, other = config_of(at_scale), config_of(in_miniature)
        assert [*one.losses] == [*other.losses], row.name
        assert one.model.name == other.model.name
        assert one.frozen == other.frozen
        for option, value in other.model.head.items():
            assert one.model.head[option] == value, (row.name, option)
        assert one.model.image.get("rope") == other.model.image.get("rope")
        paths = (config.text.tokenizer_options.get("path") for config in (one, other))
        assert one.text.tokenizer != "vectors" or len({*paths}) == 1
        assert other.input.hard_images == 0


def test_the_rows_of_each_family_have_its_model_and_loss():
    runs = {run.name: config_of(run) for run in acl2025.at_full_size(acl2025.ROWS, GIVEN)}
    for name, variant, weights, losses in (
        ("ft", "L/14-336", "a.pt", ("infonce", "negclip")),
        ("siglip_ft", "SigLIP-L/16-256", "folder", ("sigmoid", "sigmoid_negatives")),
        ("eva_ft", "EVA01-g/14", "e.pt", ("infonce", "negclip")),
        ("eva_e_ft", "EVA02-E/14", "e14.safetensors", ("infonce", "negclip")),
    ):
        for config, loss in zip((runs[name], runs[f"{name}_negatives"]), losses, strict=True):
            assert (config.model.variant, config.init_from) == (variant, weights)
            assert (*config.losses,) == (loss,)
            assert config.frozen == ("image",)
    assert runs["eva_ft"].input.image_size == 224
    given = GIVEN | {"eva": GIVEN["eva"] + ",variant=EVA02-L/14-336,size=336"}
    runs = {run.name: config_of(run) for run in acl2025.at_full_size(acl2025.ROWS, given)}
    assert runs["eva_ft"].model.variant == "EVA02-L/14-336"


def test_rows_for_which_nothing_is_given_are_left_out():
    everything = {row.name for row in acl2025.ROWS if row.config}
    needed = {name: [r.name for r in acl2025.ROWS if acl2025.family(r) == name] for name in GIVEN}
    needed["vectors"] = ["pacl_vectors"]
    for given, rows in needed.items():
        names = {run.name for run in acl2025.at_full_size(acl2025.ROWS, GIVEN | {given: ""})}
        assert names == everything.difference(rows)
        assert names != everything
    small = {run.name for run in acl2025.miniature(acl2025.ROWS, "clip")}
    assert "pacl-of-clip" in small
    assert "pacl_vectors-of-clip" not in small


def test_what_is_started_from_comes_first_and_seeds_stay_together():
    todo = acl2025.of_seeds(acl2025.miniature(acl2025.ROWS, "relations"), 2)
    names = [run.name for run in todo]
    assert len(set(names)) == len(names)
    assert all(names.index(run.base) < names.index(run.name) for run in todo if run.base)
    assert all(run.base.endswith(f"-{run.seed}") for run in todo if run.base)


def test_the_rows_of_the_paper_have_its_values_and_ours_have_none():
    printed = {row.name: acl2025.paper(row.model) for row in acl2025.ROWS if row.model}
    assert printed["ft"] == ["50.5 1.9", "–", "53.9 5.9", "–"]
    assert printed["eva"] == ["49.0 1.0", "–", "50.1 4.9", "–"]
    assert printed["pacl_vectors"] == ["50.5 10.7", "48.5 6.8", "50.0 15.7", "53.9 21.6"]
    assert len(printed) == 13
    assert acl2025.paper("") == ["–"] * 4


def write_result(out, run, benchmark, **values):
    folder = out / f"{run}-0" / "evals" / benchmark
    folder.mkdir(parents=True, exist_ok=True)
    (out / f"{run}-0" / "DONE").touch()
    metrics = {
        name: {"value": value, "low": value - 0.02, "high": value + 0.02, "chance": 0.25}
        for name, value in values.items()
    }
    document = {"summary": [*values], "metrics": metrics}
    (folder / "9.json").write_text(json.dumps(document))


def test_the_table_has_the_papers_numbers_beside_ours(tmp_path):
    rows = [row for row in acl2025.ROWS if row.name in ("clip", "pacl", "sparc")]
    names = {row.name: row.name for row in rows}
    write_result(tmp_path, "clip", "scenes_whatsup", pair_accuracy=0.3)
    write_result(tmp_path, "clip", "scenes_negation", accuracy=0.9)
    write_result(tmp_path, "clip", "retrieval", recall=0.9)
    write_result(tmp_path, "pacl", "scenes_whatsup", pair_accuracy=0.5, group_score=0.1)
    text = acl2025.table(rows, names, study_results.Results(tmp_path, 1))
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert lines[0][-1] == "scenes_whatsup pair_accuracy"  # the only one that both have
    assert lines[2] == ["chance", *["50.0 25.0"] * 4, "25.0"]
    assert lines[3] == ["CLIP", "49.0 1.9", "61.7 23.3", "54.9 10.8", "51.5 7.8", "30.0 ±2.0"]
    assert lines[4][-1] == "50.0 ±2.0"
    assert lines[5] == ["SPARC", *["–"] * 5]


def test_a_finished_run_without_evaluations_has_no_columns(tmp_path):
    (tmp_path / "clip-0").mkdir()
    (tmp_path / "clip-0" / "DONE").touch()
    (tmp_path / "pacl-0" / "evals" / "scenes_whatsup").mkdir(parents=True)
    results = study_results.Results(tmp_path, 1)
    assert acl2025.shared_columns(results, ["clip"]) == []
    assert acl2025.shared_columns(results, ["pacl", "clip"]) == []


DAMAGED = {
    "cut": b'{"summary": ["pair_accuracy"], "metrics": {"pair_acc',
    "not UTF-8": b"\xff",
    "a list": b"[1]",
    "deep": b"[" * 100_000,
    "no metrics": b'{"summary": ["pair_accuracy"]}',
    "other metrics": b'{"summary": ["pair_accuracy"], "metrics": {"a": {"chance": 0.5}}}',
    "a number": b'{"summary": ["pair_accuracy"], "metrics": {"pair_accuracy": 5}}',
    "no value": b'{"summary": ["pair_accuracy"], "metrics": {"pair_accuracy": {"chance": 0.5}}}',
    "a text": b'{"summary": ["m"], "metrics": {"m": {"chance": "x", "value": "high"}}}',
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_result_ends_the_sweep_in_one_line(tmp_path, case, capsys, monkeypatch):
    write_result(tmp_path, "clip", "scenes_whatsup", pair_accuracy=0.3)
    (tmp_path / "clip-0/evals/scenes_whatsup/9.json").write_bytes(DAMAGED[case])
    monkeypatch.setattr(study.Study, "run", lambda self: [])
    assert acl2025.main(["--miniature", "--rows=clip", "--out", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "scenes_whatsup" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "acl2025.md").exists()


def test_files_that_are_no_steps_are_no_results(tmp_path):
    write_result(tmp_path, "clip", "scenes_whatsup", pair_accuracy=0.3)
    for name in ("9a.json", "\u00b2.json", "10.json.writing"):
        (tmp_path / "clip-0/evals/scenes_whatsup" / name).write_text("[]")
    columns = acl2025.shared_columns(study_results.Results(tmp_path, 1), ["clip"])
    assert [column.metric for column in columns] == ["pair_accuracy"]


@pytest.mark.parametrize("content", [b"[1]", b"{", b"\xff", b"{}"])
def test_a_damaged_request_is_refused_in_one_line(tmp_path, content, capsys):
    (tmp_path / "clip-0").mkdir()
    (tmp_path / "clip-0" / study.REQUEST).write_bytes(content)
    assert acl2025.main(["--miniature", "--rows=clip", "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert study.REQUEST in error
    assert error.count("\n") == 1


def test_a_dry_run_prints_what_would_be_started_and_starts_nothing(tmp_path, capsys):
    out = tmp_path / "out"
    words = ["--dry-run", "--out", str(out), "--rows", "pacl,ft", "--clip", GIVEN["clip"]]
    assert acl2025.main([*words, "--config.model.dtype=bfloat16"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2
    assert "--config configs/pacl.py:data=llava,pooling=own_caption,weights=a.pt" in printed[1]
    assert all(line.endswith("--config.model.dtype=bfloat16") for line in printed)
    assert not out.exists()


@pytest.mark.parametrize(
    "words",
    [(), ("--miniature", "--clip=weights=a"), ("--miniature", "--rows=x"), ("--miniature", "--x")],
)
def test_wrong_options_are_refused(words, capsys):
    with pytest.raises(SystemExit) as end:
        acl2025.main(words)
    assert end.value.code == 2
    assert "error:" in capsys.readouterr().err


@pytest.mark.slow
def test_a_sweep_goes_on_where_it_stopped_and_writes_its_table(tmp_path):
    words = (
        *("--miniature", "--out", tmp_path, "--rows", "clip,pacl"),
        *("--config.steps=2", "--config.batch_size=8", "--config.optimizer.warmup_steps=1"),
        *("--config.input.scenes.count=32", "--config.input.preview=4", "--config.log_every=1"),
        *("--config.eval.batch_size=16", "--config.eval.every=2"),
        "--config.model.image={'depth': 1, 'pooling': 'mean'}",
        "--config.model.text={'depth': 1}",
        "--config.evals={'scenes_whatsup': {'split': 'test', 'count': 16}}",
    )
    done = run(*words)
    assert done.returncode == 0, done.stderr + (tmp_path / "clip-0/log.txt").read_text()
    page = (tmp_path / "acl2025.md").read_text()
    assert "scenes_whatsup pair_accuracy" in page
    shutil.rmtree(tmp_path / "pacl-of-clip-0")
    before = (tmp_path / "clip-0/events.jsonl").read_text()
    assert run(*words).returncode == 0
    assert (tmp_path / "clip-0/events.jsonl").read_text() == before
    assert (tmp_path / "pacl-of-clip-0/DONE").exists()
    assert (tmp_path / "acl2025.md").read_text() == page
    other = run(*words, "--config.seed=3")
    assert other.returncode == 2
    assert "has other settings: flags" in other.stderr
    assert (
        json.loads((tmp_path / "clip-0" / study.REQUEST).read_text())["config"]
        == "scenes/clip:pooling=mean"
    )

"""The sweeps of the papers' tables: rows, commands, pages, a shrunken part of them."""

import importlib
import json
import re
import shlex
from pathlib import Path

import pytest

from studies import paper_rows, paper_tables, papers, study
from tests.support import helpers
from vlc_jax.configs.common import classification, pretrained
from vlc_jax.configs.common.methods.record import L14
from vlc_jax.input_pipeline import benchmarks
from vlc_jax.report import published

ROOT = Path(__file__).resolve().parents[2]
ALL = tuple(paper_rows.PAPERS)
EXAMPLES = paper_rows.GIVEN


def config_of(run):
    name, _, arguments = run.config.partition(":")
    module = importlib.import_module(f"vlc_jax.configs.{name.replace('/', '.')}")
    if run.base and name == "eval/zero_shot":
        arguments += ",weights=of_the_base"
    return module.get_config(arguments)


def full_size(names=ALL, given=None, **options):
    given = EXAMPLES if given is None else given
    return papers.at_full_size(papers.rows_of(names), names, given, "sets", **options)


def test_every_model_of_a_table_has_one_row():
    models = {value.model for name in ALL for value in paper_tables.values_of(name)}
    rows = [row.model for row in papers.ROWS if row.model]
    means = {m for m in models if m.startswith("models with")}  # of the text
    assert models - {*rows} == {"chance", "human"} | means
    assert {*rows} <= models
    assert len(rows) == len({*rows})
    runs = [row.run for row in papers.ROWS]
    assert len(runs) == len({*runs})
    assert full_size().missing == {}


def printed_evals(papers_of, capsys):
    """Run -> its evaluations, by the commands that a dry run prints."""
    assert papers.main([*papers_of, "--dry-run"]) == 0
    evals = {}
    for words in map(shlex.split, capsys.readouterr().out.splitlines()):
        folder, config = (words[words.index(flag) + 1] for flag in ("--workdir", "--config"))
        name, _, arguments = config.removeprefix("configs/").partition(":")
        arguments = re.sub(r"\brun=[^,]*", "weights=of_the_base", arguments)
        run = study.Run("", f"{name.removesuffix('.py')}:{arguments}")
        row = Path(folder).name.removesuffix("-0").removesuffix("_zero_shot")
        evals.setdefault(row, {}).update(config_of(run).evals.to_dict())
    return evals


def is_evaluated(value, evals):
    """True if evaluations have the metric of a column, by its protocol."""
    if value.benchmark in classification.GROUPS:
        return {*classification.GROUPS[value.benchmark]} <= {*evals}
    end = "probe" if value.protocol == "linear_probe" else paper_tables.asked(value)
    options = evals["_".join(filter(None, (value.benchmark, end)))]
    reader = options.get("reader", value.benchmark)
    protocol = options.get("protocol", benchmarks.PROTOCOL_OF[reader])
    printed = {"generation": "multiple_choice"}.get(value.protocol, value.protocol)
    return protocol == printed and (value.metric != "image_cosine" or options.get("geometry"))


@pytest.mark.parametrize("paper", ALL)
def test_printed_commands_evaluate_every_column_of_the_tables(paper, capsys):
    """Those of the page's table: docs/experiments.md says yes to them."""
    page = (ROOT / "docs/experiments.md").read_text()
    evals, runs = printed_evals([paper], capsys), {row.model: row.run for row in papers.ROWS}
    for value in paper_tables.values_of(paper):
        if value.model in runs:
            assert is_evaluated(value, evals[runs[value.model]]), value
            source = published.sources()[value.source]["name"]
            (row,) = [
                line
                for line in page.splitlines()
                if line.startswith(f"| {source} | ")
                if value.table in line.split(" | ")[1].split("; ")
            ]
            assert {value.benchmark, runs[value.model]} <= {*re.split(r"[ ,|]+", row)}, value


def test_aros_figure_has_retrieval_under_every_shuffle():
    runs = {run.name: run for run in full_size(["aro"]).runs}
    for name in ("b32", "blip_coco_itc"):
        evals = config_of(runs[name]).evals.values()
        shuffles = [options for options in evals if {*options} & {"text_shuffle", "image_shuffle"}]
        assert len(shuffles) == 16
    assert "itc" in str(runs["blip_coco_itc"].flags)


def test_a_run_of_several_papers_is_made_once_for_all_of_them():
    (negclip,) = [run for run in full_size().runs if run.name == "negclip"]
    assert {"replace", "vg_relation", "coco_order"} <= {*config_of(negclip).evals}
    both = {run.name: config_of(run).evals for run in full_size(["hard_positives", "dcsm"]).runs}
    assert {*both["l14"]} == {"replace", "swap"}  # dcsm has no row of it
    assert {"replace", "swap"} <= {*both["b32"]}
    for name, wording in (("dcsm", "dcsm"), ("dcsm_b32", "dcsm_baseline")):
        assert both[name]["whatsup_a"].wording == wording
    of_one = [config_of(run) for run in full_size(["aro"]).runs if run.name == "negclip"]
    assert "replace" not in of_one[0].evals
    few = full_size(["aro"], allowed=["coco_order"])
    assert all([*config_of(run).evals] == ["coco_order"] for run in few.runs)


def test_a_row_in_miniature_is_the_recipe_at_full_size():
    large = {run.name: config_of(run) for run in full_size(["acl2025"]).runs}
    rows = papers.rows_of(["acl2025"])
    small = papers.miniature(rows, "clip")[2:]
    assert [run.name.partition("-")[0] for run in small] == [r.run for r in rows if r.scenes]
    assert {run.base for run in small} == {"clip", "siglip"}
    for run in small:
        one, other = large[run.name.partition("-")[0]], config_of(run)
        assert [*one.losses] == [*other.losses], run.name
        assert (one.model.name, one.frozen) == (other.model.name, other.frozen)
        for option, value in other.model.head.items():
            assert one.model.head[option] == value, (run.name, option)
        assert one.model.image.get("rope") == other.model.image.get("rope")
        assert other.input.hard_images == 0
    for paper in ALL:
        assert papers.miniature(papers.rows_of([paper]), "relations")[3:]


def test_the_rows_of_each_family_have_its_model_and_loss():
    given = EXAMPLES | {"eva": "weights=e.pt,path=x,variant=EVA02-L/14-336,size=336"}
    runs = {run.name: config_of(run) for run in full_size(["acl2025"], given).runs}
    for name, variant, losses in (
        ("l14_336_ft", "L/14-336", ("infonce", "negclip")),
        ("siglip_ft", "SigLIP-L/16-256", ("sigmoid", "sigmoid_negatives")),
        ("eva_ft", "EVA02-L/14-336", ("infonce", "negclip")),
        ("eva_e_ft", "EVA02-E/14", ("infonce", "negclip")),
    ):
        for config, loss in zip((runs[name], runs[f"{name}_negatives"]), losses, strict=True):
            assert config.model.variant == variant
            assert (*config.losses,) == (loss,)
            assert config.frozen == ("image",)
    assert runs["l14_336"].input.eval_crop in (None, pretrained._centre_crop("a.pt"))


def test_rows_for_which_nothing_is_given_say_what_they_need():
    def made(todo):
        return {run.name.removesuffix("_zero_shot") for run in todo.runs}

    every = made(full_size())
    for name in EXAMPLES:
        needed = {row.run for row in papers.ROWS if row.given == name}
        todo = full_size(given={key: words for key, words in EXAMPLES.items() if key != name})
        after = {run for run, why in todo.missing.items() if why.startswith("starts from")}
        assert every - made(todo) == needed | after
        for run in needed - after:
            assert todo.missing[run] == f"--given {name}:{EXAMPLES[name]}"
    stages = full_size(given={"stage1": EXAMPLES["stage1"]})
    assert [run.name for run in stages.runs] == ["llava_lora_stage1", "llava_cls_stage1"]


def test_the_second_of_two_stages_of_a_llava_is_evaluated(tmp_path):
    runs = papers.seeded(full_size().runs, 2)
    commands = {run.name: study.command(run, tmp_path, ()) for run in runs}
    for name, first in (("llava_cls", "llava_cls_stage1"), ("llava_rp", "llava_lora_stage1")):
        words = commands[f"{name}-1"]
        assert f"--config.init_from={tmp_path}/{first}-1" in words
        assert [*commands].index(f"{first}-1") < [*commands].index(f"{name}-1")
        assert "root=sets" in " ".join(words)
        assert "root=" not in " ".join(commands[f"{first}-1"])
    configs = {run.name: config_of(run) for run in full_size(["acl2025"]).runs}
    assert configs["llava_cls"].model.head.select == configs["llava_cls_stage1"].model.head.select
    assert configs["llava_cls"].model.head.select == "cls"


def test_the_two_changed_llavas_are_trained_whole_and_asked_mmvp():
    configs = {run.name: config_of(run) for run in full_size(["erroneous_agreements"]).runs}
    for name in ("llava_rp", "llava_diva"):
        assert not configs[name].lora.targets
        assert configs[name].evals.mmvp_written.decoding == "greedy"
    assert "img_diff" in configs["llava_rp"].input.source_options.annotations
    assert configs["llava_diva_stage1"].init_from == "OpenAI-ViT-L-14-336.pth"
    assert configs["llava_lora_stage1"].init_from == "ViT-L-14-336px.pt"


def write_result(out, run, benchmark, count=8, protocol="choice", **values):
    folder = out / f"{run}-0" / "evals" / benchmark
    folder.mkdir(parents=True, exist_ok=True)
    (out / f"{run}-0" / "DONE").touch()
    metrics = {
        name: {"value": value, "low": value - 0.02, "high": value + 0.02, "chance": 0.25}
        | {"count": count, "unit": "fraction"}
        for name, value in values.items()
    }
    document = {"benchmark": benchmark, "reader": benchmark, "protocol": protocol, "step": 9}
    document |= {"summary": [*values], "metrics": metrics}
    (folder / "9.json").write_text(json.dumps(document))


def cells(text, title):
    """First cell -> the others, of the table under a title."""
    lines = text.partition(f"## {title}\n")[2].partition("\n## ")[0].strip().splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "|" in line]
    return {first: rest for first, *rest in rows}


def test_a_page_has_ours_of_as_many_cases_beside_the_papers(tmp_path):
    rows = papers.rows_of(["acl2025"])
    (value,) = [
        value
        for value in paper_tables.values_of("acl2025")
        if value.table == "table 1" and value.model == L14
        if (value.benchmark, value.full_metric) == ("whatsup_a_two_way", "accuracy/left_right")
    ]
    assert value.count == 206
    accuracy = {"accuracy/subset=left_right": 0.4951, "accuracy": 0.51}
    write_result(tmp_path, "l14_336", "whatsup_a_two_way", 206, **accuracy)
    write_result(tmp_path, "siglip", "whatsup_a_two_way", 8, **accuracy)
    text = paper_tables.page("acl2025", rows, {}, tmp_path, 1)
    table = cells(text, "table 1")
    assert table[""][0] == "whatsup_a_two_way accuracy/left_right"
    assert table["chance"][0] == "50.0"
    assert table[L14][:2] == ["49.0 **49.5** ±2.0", "1.9"]
    assert table["LLaVA-1.5-7B"][0] == "96.6"
    trained = cells(text, "table on training data")
    assert trained["SigLIP ViT-L/16-384"][0] == "50.0"  # ours has other cases
    every = cells(text, "All results")
    assert every[L14] == every["SigLIP ViT-L/16-384"] == ["51.0 ±2.0"]
    for name in ALL:
        page = paper_tables.page(name, papers.rows_of([name]), {}, tmp_path, 1)
        assert page.count("\n## ") == 1 + len({v.table for v in paper_tables.values_of(name)})


def test_the_mean_over_vtab_is_of_all_its_tasks(tmp_path):
    def table_10():
        page = paper_tables.page(
            "hard_positives", papers.rows_of(["hard_positives"]), {}, tmp_path, 1
        )
        assert "webdatasets.txt" in page
        table = cells(page, "table 10")
        return dict(zip(table[""], table["CLIP ViT-B/32"], strict=True))

    (tmp_path / "b32-0").mkdir()
    (tmp_path / "b32-0/DONE").touch()
    for number, task in enumerate(classification.GROUPS["vtab_20"]):
        if number == 19:  # which is not there
            assert table_10()["vtab_20 mean_accuracy"] == "39.00"
        few = {} if task in ("pcam", "kitti_closest_vehicle_distance") else {"accuracy_top5": 0.75}
        result = {"accuracy": 0.3 + 0.01 * number, **few}
        write_result(tmp_path, "b32_zero_shot", task, protocol="zeroshot", **result)
    half = 2 / 20**0.5  # of each 2
    assert table_10()["vtab_20 mean_accuracy"] == f"39.00 **39.50** ±{half:.2f}"
    assert "**75.00**" in table_10()["vtab_20 mean_accuracy_top5"]
    write_result(tmp_path, "b32_zero_shot", "cifar10_probe", protocol="linear_probe", accuracy=0.95)
    page = paper_tables.page("aro", papers.rows_of(["aro"]), {}, tmp_path, 1)
    row = next(line for line in page.splitlines() if line.startswith("| CLIP ViT-B/32"))
    assert "0.95 **0.950** ±0.020" in row


def test_written_letters_and_whole_options_stand_in_their_own_cells(tmp_path):
    for name, share in (("written", 0.2), ("letters", 0.3), ("options", 0.4)):
        metrics = {"pair_accuracy": share, "relaxed_pair": share + 0.5}
        write_result(tmp_path, "llava", f"mmvp_{name}", 150, "multiple_choice", **metrics)
    for t in (0, 1):
        found = {"pair_accuracy": 0.1 + 0.25 * t}
        write_result(tmp_path, "llava_m3id", f"mmvp_m3id_t{t}", 150, "multiple_choice", **found)
    text = paper_tables.page("erroneous_agreements", papers.rows_of(ALL), {}, tmp_path, 1)

    def cell(title, model, column):
        table = cells(text, title)
        return dict(zip(table[""], table[model], strict=True))[column]

    assert cell("table 6", "LLaVA-1.5-7B", "mmvp pair_accuracy") == "25.3 **20.0** ±2.0"
    (m3id,) = [row for row in cells(text, "table 6") if "M3ID" in row]
    assert cell("table 6", m3id, "mmvp pair_accuracy") == "31.3 **35.0** ±2.0"
    assert cell("table 7", "LLaVA-1.5-7B", "mmvp relaxed_pair") == "73.3 **90.0** ±2.0"
    assert cell("table 3", "LLaVA-1.5-7B", "mmvp pair_accuracy by letters") == "? **30.0** ±2.0"
    assert cell("table 3", "LLaVA-1.5-7B", "mmvp_vlm pair_accuracy") == "?"
    assert "graded by hand" in text


def test_means_of_the_text_are_of_all_their_models(tmp_path):
    def means():
        rows = papers.rows_of(["hard_positives"])
        page = paper_tables.page("hard_positives", rows, {}, tmp_path, 1)
        table = cells(page, "table 1")
        drop = dict(zip(table[""], table["NegCLIP"], strict=True))
        return (
            drop["replace augmented_minus_original_macro"],
            cells(page, "section 4.2")["models with hard negatives"][0],
            cells(page, "transfer")["models with swapped words"][1],
        )

    runs = ("negclip", "crepe_swap", "crepe_replace", "svlc", "svlc_pos", "dac_llm", "dac_sam")
    for number, run in enumerate(runs):
        accuracies = {"original_accuracy": 0.8, "augmented_accuracy": 0.5 + 0.01 * number}
        found = accuracies | {"brittleness": 0.2 + 0.02 * number}
        found = {f"{metric}_macro": value for metric, value in found.items()}
        write_result(tmp_path, run, "replace", 27_443, "triplet", **found)
        if run == "dac_llm":
            assert means() == ("-16.6 **-30.0** ±2.8", "-24.4", "20.7 **21.0** ±1.4")
    assert means()[1] == f"-24.4 **-27.0** ±{2.8 / 7**0.5:.1f}"


def test_the_page_of_a_miniature_begins_with_its_bases(tmp_path):
    rows = papers.rows_of(["acl2025"])
    runs = {"clip": "clip", "pacl": "pacl-of-clip", "sparc": "sparc-of-clip"}
    write_result(tmp_path, "clip", "scenes_whatsup", pair_accuracy=0.3)
    write_result(tmp_path, "clip", "scenes_negation", accuracy=0.9)
    write_result(tmp_path, "pacl-of-clip", "scenes_whatsup", pair_accuracy=0.5, group_score=0.1)
    (tmp_path / "clip-0/evals/scenes_whatsup/9a.json").write_text("[]")  # no step
    every = cells(paper_tables.page("acl2025", rows, runs, tmp_path, 1), "All results")
    assert [*every] == ["", "---", "chance", "clip", f"{L14} + PACL"]
    assert every[""] == ["scenes_whatsup pair_accuracy", "scenes_whatsup group_score"]
    assert every["clip"] == ["30.0 ±2.0", "–"]


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
    monkeypatch.setattr(study, "make", lambda *_: [])
    assert papers.main(["acl2025", "--miniature", "--rows=pacl", "--out", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "scenes_whatsup" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "acl2025.md").exists()


@pytest.mark.parametrize("content", [b"[1]", b"{", b"\xff", b"{}"])
def test_a_damaged_request_is_refused_in_one_line(tmp_path, content, capsys):
    (tmp_path / "clip-0").mkdir()
    (tmp_path / "clip-0" / study.REQUEST).write_bytes(content)
    assert papers.main(["acl2025", "--miniature", "--rows=pacl", "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert study.REQUEST in error
    assert error.count("\n") == 1


def test_a_dry_run_prints_commands_and_needs_and_starts_nothing(tmp_path, capsys):
    out = tmp_path / "out"
    words = ["--dry-run", "--out", str(out), "--rows", "pacl,l14_336,eva"]
    given = ["--root", "my", "--given", "clip:weights=a.pt,path=b.json"]
    flag = "--config.model.image={'depth': 1}"
    assert papers.main(["acl2025", *words, *given, flag]) == 0
    evaluation, training, missing = capsys.readouterr().out.splitlines()
    assert "configs/eval/all.py:variant=L/14-336,size=336,weights=a.pt,root=my,sets=" in evaluation
    assert "--mode eval" in evaluation
    assert "configs/pacl.py:data=llava,pooling=own_caption,weights=a.pt,path=b.json" in training
    assert all(shlex.split(line)[-1] == flag for line in (evaluation, training))
    assert missing == f"# eva: --given eva:{EXAMPLES['eva']}"
    assert papers.main(["acl2025", *words]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3  # with examples of files
    assert not out.exists()


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--miniature", "--root=a"),
        ("--miniature", "--rows=x"),
        ("--miniature", "--x"),
        ("--root=a", "--given", "x:weights=a"),
        ("--given", "clip:weights=a"),
        ("--dry-run", "--sets=x"),
    ],
)
def test_wrong_options_are_refused(words, capsys):
    with pytest.raises(SystemExit) as end:
        papers.main(["acl2025", *words])
    assert end.value.code == 2
    assert "error:" in capsys.readouterr().err


@pytest.mark.slow
def test_a_sweep_goes_on_where_it_stopped_and_writes_its_pages(tmp_path):
    def run(rows, *more):
        return helpers.python("studies/papers.py", *words, "--rows", rows, *more)

    words = (
        *(*ALL, "--miniature", "--out", tmp_path),
        *("--config.steps=2", "--config.batch_size=8", "--config.optimizer.warmup_steps=1"),
        *("--config.input.scenes.count=32", "--config.input.preview=4", "--config.log_every=1"),
        *("--config.eval.batch_size=16", "--config.eval.every=2"),
        "--config.model.image={'depth': 1, 'pooling': 'mean'}",
        "--config.model.text={'depth': 1}",
        "--config.evals={'scenes_relation_swap': {'split': 'test', 'count': 16}}",
    )
    done = run("negclip")
    assert done.returncode == 0, done.stderr + (tmp_path / "clip-0/log.txt").read_text()
    for name in ("aro", "hard_positives"):
        every = cells((tmp_path / f"{name}.md").read_text(), "All results")
        assert " ±" in every["NegCLIP"][0]
    before = (tmp_path / "clip-0/events.jsonl").read_text()
    assert run("negclip,pacl").returncode == 0
    assert (tmp_path / "clip-0/events.jsonl").read_text() == before
    every = cells((tmp_path / "acl2025.md").read_text(), "All results")
    assert [*every][3:] == ["clip", f"{L14} + PACL"]
    other = run("negclip", "--config.seed=3")
    assert other.returncode == 2
    assert "was begun with flags" in other.stderr
    request = json.loads((tmp_path / "clip-0" / study.REQUEST).read_text())
    assert request["config"] == "scenes/clip:pooling=mean"

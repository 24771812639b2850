"""vlc-jax benchmarks"""

import json
import re
import shutil

import pytest

from docs import benchmark_sets
from tests.support.sets import mmvp
from vlc_jax.configs.eval import all as suite
from vlc_jax.input_pipeline.benchmarks import PUBLISHED
from vlc_jax.input_pipeline.benchmarks.sugarcrepe import SUBSETS
from vlc_jax.input_pipeline.commands.benchmarks import main, state_of


def test_the_config_of_all_sets_has_every_published_one():
    assert set(suite.SETS) == set(PUBLISHED)


def test_an_unknown_set_names_the_nearest():
    with pytest.raises(ValueError, match=r"unknown set .sugarcrep.; did you mean .sugarcrepe.\?"):
        suite.get_config("sets=vg_relation+sugarcrep")
    with pytest.raises(ValueError, match=r"vlc-jax benchmarks --root DIR"):
        suite.get_config("root=sets")


def test_the_table_of_the_docs_is_what_the_records_say():
    page = benchmark_sets.PAGE.read_text()
    assert benchmark_sets.rewritten(page) == page
    assert all(f"| `{name}` |" in page for name in PUBLISHED)


def test_sets_that_are_there_are_counted_and_named(all_sets, capsys):
    tagger = f"precomputed:{all_sets / 'tags.jsonl'}"
    assert main(["--root", str(all_sets), "--tagger", tagger]) == 0
    printed = capsys.readouterr().out
    named = printed.strip().splitlines()[-1].removeprefix("sets=")
    assert set(named.split("+")) == set(PUBLISHED)
    assert "vg_relation: 4 cases; published are 23,937" in printed
    assert "vg_relation: its images are of Visual Genome" in printed


def test_missing_files_and_missing_images_say_how_to_get_them(all_sets, tmp_path, capsys):
    (tmp_path / "sugar_crepe").symlink_to(all_sets / "sugar_crepe")
    assert main(["--root", str(tmp_path), "--sets", "sugarcrepe+vg_relation"]) == 1
    printed = capsys.readouterr().out
    first = rf"{tmp_path}/coco/val2017/\d+\.jpg"
    missing = f"sugarcrepe: 2 of 2 images are missing, the first is {first}; put the images into "
    assert re.search(missing, printed)
    assert (
        "put the images into ROOT/coco/val2017; they come from github.com/RAIVNLab/sugar-crepe"
        in printed
    )
    assert "--fetch sugarcrepe downloads them" in printed
    assert "add_att.json" not in printed
    annotations = tmp_path / "aro" / "visual_genome_relation.json"
    assert f"vg_relation: not there: there is no {annotations}; put visual" in printed
    assert "and the images into ROOT/aro/images; they come from" in printed


def test_images_that_are_there_are_not_asked_for(all_sets, tmp_path, capsys):
    (tmp_path / "coco").symlink_to(all_sets / "coco")
    assert main(["--root", str(tmp_path), "--sets", "sugarcrepe"]) == 1
    printed = capsys.readouterr().out
    first, *_, last = SUBSETS
    assert f"there is no {tmp_path}/sugar_crepe/{first}.json; put {first}.json, " in printed
    assert f", {last}.json into ROOT/sugar_crepe; they come from" in printed
    assert "the images" not in printed


def test_images_in_a_wrong_folder_are_seen_by_the_first_path(tmp_path, capsys):
    mmvp.write(tmp_path)
    for path in (tmp_path / "mmvp").glob("MMVP*/*"):
        path.rename(tmp_path / "mmvp" / path.name)
    assert main(["--root", str(tmp_path), "--sets", "mmvp"]) == 1
    printed = capsys.readouterr().out
    assert f"images are missing, the first is {tmp_path}/mmvp/MMVP Images/1.jpg; put the" in printed
    assert "put the images, such as MMVP Images/1.jpg, into ROOT/mmvp; they come" in printed
    (tmp_path / "mmvp" / "Questions-clip.csv").write_text("damaged")
    assert main(["--root", str(tmp_path), "--sets", "mmvp"]) == 1
    assert "put " not in capsys.readouterr().out


def test_a_set_that_cannot_be_read_is_one_line_among_the_others(
    all_sets, tmp_path, capsys, monkeypatch
):
    shutil.copytree(all_sets / "whatsup", tmp_path / "whatsup")
    (tmp_path / "coco").symlink_to(all_sets / "coco")
    path = tmp_path / "whatsup" / "coco_qa_one_obj.json"
    path.write_text(json.dumps([[1, 7, "\x1b[2J\ud800"], *json.loads(path.read_text())]))
    path.with_name("coco_qa_two_obj.json").write_text('[[["\\n\\u001b"]]]')

    def fails(**options):
        raise ZeroDivisionError(f"a fault of a reader\n{sorted(options)}")

    _, origin = PUBLISHED["gqa_spatial_one"]
    monkeypatch.setitem(PUBLISHED, "gqa_spatial_one", (fails, origin))
    sets = "coco_spatial_one+gqa_spatial_one+coco_spatial_two+whatsup_a"
    assert main(["--root", str(tmp_path), "--sets", sets]) == 0
    printed = capsys.readouterr().out
    lines = [line for line in printed.splitlines() if "cannot be read: " in line]
    assert [line.partition(":")[0] for line in lines] == sets.split("+")[:3]
    assert "coco_qa_one_obj.json: case 0, 'correct': a text is needed; got 7" in lines[0]
    assert "an error of vlc_jax: ZeroDivisionError: a fault of a reader ['root']" in lines[1]
    assert "coco_qa_two_obj.json: case 0 is not a list of image id" in lines[2]
    assert "\x1b" not in printed
    assert printed.splitlines()[-1] == "sets=whatsup_a"


def test_images_that_training_has_are_counted(all_sets, tmp_path, capsys):
    table = tmp_path / "train.csv"
    table.write_text("filepath,title\ncoco/val2017/000000000002.jpg,a cat\n")
    arguments = ["--root", str(all_sets), "--sets", "sugarcrepe", "--train", str(table)]
    assert main(arguments) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if "sugarcrepe" in line)
    assert row.split()[-1] == "1"
    genome = frozenset({"vg:0"})  # ARO's images are Visual Genome's, by their number
    assert state_of("vg_relation", all_sets, "", genome).leaked == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--root", "nowhere"], "there is no folder"),
        (["--root", ".", "--sets", "x"], "unknown published set 'x'"),
        (["--root", ".", "--sets", "mmvp,x"], "unknown published set 'x'"),
        (["--root", ".", "--sets", "mmvp+mmvp", "x"], "unknown published set 'x'"),
        (["--root", ".", "--fetch", "mmvp,", "x"], "unknown published set 'x'"),
        (["--root", ".", "--fetch", ","], "',' names no set"),
    ],
)
def test_wrong_requests_are_one_line(arguments, message, capsys):
    assert main(arguments) == 2
    assert message in capsys.readouterr().err

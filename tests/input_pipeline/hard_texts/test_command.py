"""The command that shows captions beside their hard texts."""

import json
import pickle
import random

import numpy as np
import pytest

from tests.support import helpers
from vlc_jax.input_pipeline.commands import balanced_table, parts
from vlc_jax.input_pipeline.commands import hard_texts as command
from vlc_jax.input_pipeline.hard_texts import balance, from_table
from vlc_jax.input_pipeline.hard_texts.llm import captions as caption_files
from vlc_jax.input_pipeline.sources import make_source

COLOURS, THINGS = ("red", "green", "blue", "grey", "pink"), ("cup", "car", "dog", "hat", "box")
MARK = " ."


@pytest.fixture
def table(tmp_path):
    captions = ["the red cat and the hat", "two men wearing hats", "grass", "grass"]
    rows = ({"caption": text} for text in captions)
    return str(helpers.write_rows(tmp_path / "captions.jsonl", rows))


def run(capsys, *arguments):
    code = command.main(arguments)
    out, errors = capsys.readouterr()
    return code, out, errors


def test_captions_stand_beside_their_texts_with_counts(capsys, table):
    code, out, _ = run(
        capsys, "--table", table, "--kinds", "replace", "--kinds", "swap", "--show", "1"
    )
    lines = out.splitlines()
    assert code == 0
    assert lines[:2] == [
        "the red cat and the hat",
        "  replace (positive): the crimson cat and the hat",
    ]
    assert lines[2].startswith("  swap (positive): the hat and the red cat")
    assert "two men wearing hats" not in out
    assert "of 4 captions:" in lines
    few = "blind not measured, of fewer than 50 pairs"
    none = "WARNING: most have none, and take no part in the loss"
    assert f"  swap: 1 have a text; {none}; {few}" in lines
    assert any(line.startswith(f"  replace: 2 have a text; {few}; new words: ") for line in lines)


def test_the_clean_mode_is_shown_unless_the_authors_is_asked_for(capsys, tmp_path):
    path = tmp_path / "captions.txt"
    path.write_text("\n".join(["sportswear on a table"] * 40))
    texts = {}
    for mode in ("clean", "authors"):
        made = run(capsys, "--table", str(path), "--kinds", "svlc_rule", "--mode", mode)[1]
        texts[mode] = {line for line in made.splitlines() if line.startswith("  svlc_rule (")}
    assert texts["clean"] != texts["authors"]
    # "on" is inside no other word of the caption but the clean mode replaces whole words alone
    assert all("sportswear" in line for line in texts["clean"])


def write_tables(folder, count):
    """A table of captions, two of each image, a file of texts, a third of which end with a mark
    that no caption has, and the words of the command that balances them."""
    draw, captions, texts = random.Random(0), [], []
    for number in range(count):
        (a, b), (x, y) = draw.sample(COLOURS, 2), draw.sample(THINGS, 2)
        caption = f"a {a} {x} and a {b} {y} {number}"
        captions.append({"image": f"{number // 2}.png", "title": caption})
        wrong = f"a {b} {x} and a {a} {y} {number}" + MARK * (number % 3 == 0)
        texts.append({"caption": caption, "negatives": [wrong]})
    for name, rows in (("captions", captions), ("texts", texts)):
        helpers.write_rows(folder / f"{name}.jsonl", rows)
    option = f'from_table={{"path": "{folder}/texts.jsonl"}}'
    words = ["--table", f"{folder}/captions.jsonl", "--column", "title", "--option", option]
    return [*words, "--kinds", "from_table", "--show", "1", "--balance", ".6"]


@pytest.fixture(scope="module")
def balanced(tmp_path_factory):
    """Folder and command of 300 captions, which all are the sample."""
    folder = tmp_path_factory.mktemp("balanced")
    words = write_tables(folder, 300)
    assert command.main([*words, "--out", f"{folder}/out.jsonl"]) == 0
    return folder, words


@pytest.fixture(scope="module")
def in_blocks(tmp_path_factory):
    """The same of 1,050 captions, a sample of 500 and 3 blocks."""
    folder = tmp_path_factory.mktemp("blocks")
    words = [*write_tables(folder, 1050), "--sample", "500"]
    with pytest.MonkeyPatch.context() as patch:
        small(patch)
        assert command.main([*words, "--out", f"{folder}/out.jsonl"]) == 0
    return folder, words


def small(patch):
    """Makes blocks of 350 rows."""
    patch.setattr(balanced_table.write, "__defaults__", (350,))


def test_training_reads_balanced_texts_in_two_ways(balanced):
    folder, _ = balanced
    rows = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert [row["caption"] for row in rows] == [row["title"] for row in rows]
    kept = [row["negatives"] != [] for row in rows]
    assert all(row["negative_kinds"] == ["from_table"] * len(row["negatives"]) for row in rows)
    marked = [row["negatives"][0].endswith(" .") for row in rows if row["negatives"]]
    assert sum(marked) < 60
    assert 150 < sum(kept) < 300
    generator = from_table.FromTable("negatives", str(folder / "out.jsonl"))
    for row in rows:
        assert generator(row["caption"], np.random.default_rng(0), 9) == row["negatives"]
    for row in rows:
        (folder / row["image"]).touch()
    columns = {"negatives_column": "negatives", "negative_kinds_column": "negative_kinds"}
    source = make_source("records", "all", path=folder / "out.jsonl", **columns)
    # the rows of an image are one record
    stored = [texts for number in range(150) for texts in source[number].negatives]
    assert stored == [row["negatives"] for row in rows]


def test_a_finished_table_is_kept_and_refused_to_other_requests(balanced, capsys, monkeypatch):
    folder, words = balanced
    words = [*words, "--out", f"{folder}/out.jsonl"]
    whole = (folder / "out.jsonl").read_bytes()
    assert not (folder / "out.jsonl.parts").exists()
    monkeypatch.setattr(balance, "Pairs", lambda *_: pytest.fail("filtered again"))
    code, out, _ = run(capsys, *words)
    assert code == 0
    kept = sum(json.loads(line)["negatives"] != [] for line in whole.splitlines())
    assert f"  from_table: keeps {kept} of 300 ({kept / 3:.1f} %); blind " in out
    for more, changed in ((["--seed", "1"], "seed 0, not 1"), (["--count", "299"], "rows 300, ")):
        code, _, errors = run(capsys, *words, *more)
        assert code == 2
        assert f"out.jsonl.json was begun with {changed}" in errors
    assert (folder / "out.jsonl").read_bytes() == whole


def test_the_filter_of_a_sample_is_applied_to_the_other_rows(in_blocks, capsys):
    folder, words = in_blocks
    out = run(capsys, *words, "--out", f"{folder}/out.jsonl")[1]
    rows = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    given = [json.loads(line) for line in (folder / "captions.jsonl").read_text().splitlines()]
    assert [row["title"] for row in rows] == [row["title"] for row in given]
    texts = from_table.FromTable("negatives", str(folder / "texts.jsonl"))
    options = [[row["title"], *texts(row["title"], np.random.default_rng(0), 1)] for row in given]
    is_kept = np.array([row["negatives"] != [] for row in rows])
    sample = np.random.default_rng(0).choice(1050, 500, replace=False, shuffle=False)
    sample = np.sort(sample)
    others = np.setdiff1d(np.arange(1050), sample)
    pairs = balance.Pairs([options[n] for n in sample], [given[n]["image"] for n in sample])
    choice, fitted = pairs.filtered(0.6)
    assert (is_kept[sample] == (choice >= 0)).all()
    assert (is_kept[others] == (fitted.choice([options[n] for n in others]) >= 0)).all()
    kept = int(is_kept.sum())
    before, after = pairs.separability(np.zeros(500, np.int64)), pairs.separability(choice)
    blind = f"blind {100 * before:.1f} -> {100 * after:.1f} % of the sample, "
    assert f"from_table: keeps {kept:,} of 1,050 ({kept / 10.5:.1f} %); {blind}" in out
    outside = int(is_kept[others].sum())
    share = float(out.split(" % of the sample, ")[1].split()[0])
    assert f"{share} % of {outside} others (chance 50)" in out
    assert ("WARNING: this is above --balance" in out) == (share > 62)
    assert "of 1,050 captions:" in out


@pytest.mark.parametrize("engine", ["process", "workers"])
def test_a_killed_balance_writes_the_bytes_of_a_whole_one(in_blocks, tmp_path, monkeypatch, engine):
    folder, words = in_blocks
    words = [*words, "--out", str(tmp_path / "out.jsonl")]
    computed = []

    compute = balanced_table.Block.__call__

    def counting(block, numbers):
        computed.append(numbers.start)
        return compute(block, numbers)

    def killed(work, report, advance):
        pickle.loads(pickle.dumps(work)).write(2)
        (work.out / f"part-00001.a{parts.PARTIAL}").write_bytes(b"of a block that was killed")
        raise KeyboardInterrupt

    def workers(work, report, advance):
        for number in reversed(range(work.count)):
            report(pickle.loads(pickle.dumps(work)).write(number))

    small(monkeypatch)
    monkeypatch.setattr(balanced_table.Block, "__call__", counting)
    with monkeypatch.context() as patch:
        patch.setattr(parts, "in_this_process", killed)
        with pytest.raises(KeyboardInterrupt):
            command.main(words)
    if engine == "workers":
        monkeypatch.setattr(parts, "engine", lambda *_: workers)
        words += ["--runner", "DirectRunner", "--", "--flag=1"]
    assert command.main(words) == 0
    assert sorted(computed) == [0, 350, 700]
    for name in ("out.jsonl", "out.jsonl.json"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"out.jsonl", "out.jsonl.json"}


def test_flags_without_a_runner_are_refused(balanced, capsys):
    _, words = balanced
    code, _, errors = run(capsys, *words, "--out", "x", "--", "--flag=1")
    assert code == 2
    assert "--flag=1 behind -- is a flag of a runner; name it in --runner" in errors


def test_a_damaged_row_is_noticed_before_a_filter_is_fitted(
    in_blocks, tmp_path, capsys, monkeypatch
):
    folder, words = in_blocks
    lines = (folder / "captions.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "captions.jsonl").write_text("".join([*lines[:300], "{\n", *lines[301:]]))
    words = [word.replace(f"{folder}/captions", f"{tmp_path}/captions") for word in words]
    monkeypatch.setattr(balance, "Pairs", lambda *_: pytest.fail("a filter is fitted"))
    code, _, errors = run(capsys, *words, "--out", str(tmp_path / "out.jsonl"))
    assert code == 3
    assert f"row 301 of {tmp_path}/captions.jsonl cannot be read" in errors
    assert not (tmp_path / "out.jsonl").exists()


def test_captions_of_a_row_are_of_one_image():
    rows = [{"caption": 1}, {"caption": 1}, {"filepath": "1.png"}, {"filepath": "1.png"}]
    table = [(row, ["a", "b"][: 2 - n // 2]) for n, row in enumerate(rows)]
    captions = balanced_table.read(table, [0, 1, 2, 3])
    assert captions.images == ["row 0", "row 0", "row 1", "row 1", "1.png", "1.png"]
    assert captions.keys == ["0", "0.1", "1", "1.1", "2", "3"]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "txt", "json"])
def test_rows_that_are_read_one_by_one_are_those_of_the_file(tmp_path, kind):
    rows = [{"image": f"{n}.png", "caption": [f"a cat {n}", f"a dog {n}"]} for n in range(5)]
    document = {
        "images": [{"id": n, "file_name": f"{n}.png"} for n in range(5)],
        "annotations": [{"image_id": n % 5, "caption": f"a cat {n}"} for n in range(10)],
    }
    texts = {
        "jsonl": "".join(json.dumps(row) + "\n" for row in rows),
        "csv": "image,caption\n" + "".join(f'{n}.png,"a cat,\n{n}"\n' for n in range(5)),
        "txt": "a cat\na dog\na hat\n",
        "json": json.dumps(document),
    }
    path = tmp_path / f"captions.{kind}"
    path.write_text(texts[kind])
    expected = caption_files.with_rows(path)
    for count in (None, 3):
        table = pickle.loads(pickle.dumps(caption_files.open_rows(path, count=count)))
        captions = balanced_table.read(table, range(len(table)))
        assert [*zip(captions.texts, captions.rows, strict=True)] == expected[:count]
        images = [row.get("image") for _, row in expected[:count]]
        assert kind == "txt" or captions.images == images


@pytest.mark.parametrize("name", ["captions.jsonl", "mine.jsonl"])
def test_a_file_that_the_command_did_not_write_is_not_replaced(capsys, table, tmp_path, name):
    (tmp_path / "mine.jsonl").write_text("precious\n")
    before = (tmp_path / name).read_text()
    words = ("--table", table, "--kinds", "replace", "--balance", ".6")
    code, _, errors = run(capsys, *words, "--out", str(tmp_path / name))
    assert code == 2
    assert "is a file that this command did not write" in errors
    assert (tmp_path / name).read_text() == before


def test_a_caption_that_no_file_can_hold_is_named_by_its_row(capsys, tmp_path):
    (tmp_path / "half.jsonl").write_text('{"caption": "a cat"}\n{"caption": "a \\ud800 cat"}\n')
    code, out, errors = run(capsys, "--table", str(tmp_path / "half.jsonl"), "--kinds", "replace")
    assert (code, out) == (3, "")
    assert "row 2 of" in errors
    assert "is not Unicode" in errors


def test_too_few_pairs_are_said_to_be_too_few(capsys, table, tmp_path):
    words = ("--table", table, "--kinds", "replace", "--balance", ".6")
    out = run(capsys, *words, "--out", str(tmp_path / "out.jsonl"))[1]
    assert "keeps 0 of 2 (0.0 %); WARNING: fewer than 50 pairs are not judged" in out


def test_texts_of_the_table_that_are_left_out_are_warned_of(capsys, tmp_path):
    (tmp_path / "own.jsonl").write_text('{"caption": "a red cat", "positives": ["a cat"]}\n')
    words = ("--table", str(tmp_path / "own.jsonl"), "--balance", ".6", "--kinds")
    warnings = [
        "WARNING: the positives that the captions' table had are not in the new one"
        in run(capsys, *words, kind, "--out", str(tmp_path / f"{kind}.jsonl"))[1]
        for kind in ("replace", "crepe_replace")
    ]
    assert warnings == [True, False]


def test_captions_that_are_mostly_the_same_are_warned_of(capsys, tmp_path):
    rows = [{"image": f"{n}.png", "caption": "a red cat"} for n in range(9)]
    (tmp_path / "same.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = run(capsys, "--table", str(tmp_path / "same.jsonl"), "--kinds", "replace")[1]
    assert "WARNING: only 1 of the captions are different" in out


def test_texts_that_give_themselves_away_are_counted(balanced, capsys):
    _, words = balanced
    out = run(capsys, *words[:-2])[1]
    (line,) = (line for line in out.splitlines() if line.startswith("  from_table: 300"))
    assert 60 < float(line.split("; blind ")[1].split()[0]) < 80


@pytest.mark.parametrize("kinds", [",", "", "replace,", "replace,swap, replace"])
def test_kinds_are_named_once_each(capsys, table, kinds):
    with pytest.raises(SystemExit, match="2"):
        command.main(["--table", table, "--kinds", kinds])
    assert f"none is empty or there twice; got {kinds!r}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--kinds", "replace", "--balance", ".6"), "--balance SHARE and --out FILE"),
        (("--kinds", "replace", "--out", "x.jsonl"), "--balance SHARE and --out FILE"),
        (("--kinds", "replace", "--balance", "60", "--out", "x"), "below 1; got 60"),
        (("--kinds", "replace", "--candidates", "8"), "--candidates 8 is for --balance"),
        (("--kinds", "replace", "--sample", "800"), "--sample 800 is for --balance; set it, too"),
        (("--kinds", "replace", "--balance", ".6", "--out", "x", "--sample", "99"), "at least 500"),
        (("--kinds", "replace", "--balance", ".6", "--out", "."), "--out . is a folder"),
        (("--kinds", "replace", "--balance", ".6", "--out", "no/x"), "there is no folder no;"),
        (("--kinds", "svlc"), "unknown kind 'svlc'; known: "),
        (("--kinds", "replace", "--option", "swap={}"), "no such generator in --kinds replace"),
        (("--kinds", "replace", "--seed", "-1"), "--seed must be at least 0"),
        (("--kinds", "replace", "--column", "title"), "has no column 'title'"),
    ],
)
def test_a_wrong_request_is_one_line_and_exit_2(capsys, table, words, message):
    code, _, errors = run(capsys, "--table", table, *words)
    assert code == 2
    assert message in errors
    assert len(errors.splitlines()) == 1

"""Tools read from object stores and write to them, and go on where they were stopped."""

import json
import os
import sys
from pathlib import Path

import pytest

from vlc_jax import main
from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.commands import addresses, command_line, prepare
from vlc_jax.input_pipeline.record import ShardError, StageError
from vlc_jax.input_pipeline.stores import any_path, fetch
from vlc_jax.tools import command

SCENES = ["--source", "scenes", "--split", "train", "--option", "count=30", "--size", "32"]


@addresses.allowed
def words(arguments=None):
    """What a tool gets for these words of its command line."""
    return arguments


def test_addresses_become_local_copies(store):
    (any_path.of(store) / "a.csv").write_bytes(b"1")
    copy = str(fetch.cache_folder(f"{store}/a.csv"))
    given = [
        "--table",
        f"{store}/a.csv",
        f"--x={store}/a.csv",
        f"path={store}/a.csv",
        "--url=http://x",
    ]
    assert words(given) == ["--table", copy, f"--x={copy}", f"path={copy}", "--url=http://x"]


def test_other_words_and_fields_of_a_config_are_left_alone():
    assert words(["a", "--b"]) == ["a", "--b"]
    assert words(["--config.init_from=gs://bucket/a"]) == ["--config.init_from=gs://bucket/a"]


def test_prepared_shards_lie_in_the_store_and_are_not_made_twice(store, capsys):
    command = [*SCENES, "--shard-size", "10", "--out", f"{store}/shards"]
    assert prepare.main(command) == 0
    there = any_path.of(f"{store}/shards")
    manifest = json.loads((there / "manifest.json").read_bytes())
    sizes = {shard["name"]: shard["bytes"] for shard in manifest["shards"]}
    assert len(sizes) == 3
    assert sizes.items() <= {name: found.size for name, found in there.files().items()}.items()
    tags = there.files()
    assert prepare.main(command) == 0
    assert there.files() == tags
    other = [*SCENES[:-1], "40", "--shard-size", "10", "--out", f"{store}/shards"]
    assert prepare.main(other) == 2  # as in a local folder
    assert "was begun with size 32, not 40" in capsys.readouterr().err
    assert there.files() == tags


def test_what_is_beside_an_output_stays(store):
    (any_path.of(store) / "shards2/a").write_bytes(b"1")
    assert prepare.main([*SCENES, "--out", f"{store}/shards"]) == 0
    assert (any_path.of(store) / "shards2/a").read_bytes() == b"1"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StageError("full"), 30),
        (ShardError("cut"), 3),
        (stores.StoreError("away"), 30),
        (ValueError("nothing"), 2),
        (KeyboardInterrupt(), 130),
    ],
)
def test_a_store_that_fails_is_one_line_and_an_exit_code(monkeypatch, capsys, error, code):
    def fail(address):
        raise error

    monkeypatch.setattr(fetch, "local", fail)
    assert words(["--table", "gs://bucket/a"]) == code
    line = "interrupted; the same command continues" if code == 130 else f"error: {error}"
    assert capsys.readouterr().err == f"{line}\n"


def test_repositories_of_the_hub_are_read_and_not_written(hub, capsys):
    hub.put("me/clip", {"a.bin": b"1"})
    (copy, push, repository) = words(["hf://me/clip", "--push", "hf://me/new"])
    assert (push, repository) == ("--push", "hf://me/new")
    assert Path(copy, "a.bin").read_bytes() == b"1"
    assert prepare.main([*SCENES, "--out", "hf://me/shards"]) == 2
    assert "error: hf://me/shards: repositories of the hub are copied" in capsys.readouterr().err


def show(text):
    print(text, flush=True)


def show_by_rich(text):
    command_line.console(width=80).print(text)


def leave_for_the_end(text):
    print(text)
    command_line.flush()


ENDS = {  # how commands end, with a way to print
    "commands": lambda: command_line.exit_code(show, "row"),
    "rich": lambda: command_line.exit_code(show_by_rich, "row"),
    "the end": lambda: leave_for_the_end("row"),
    "tools": lambda: command.run(lambda: show("row")),
    "lists of a run": lambda: main.show("row"),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_reader_that_has_left_ends_a_command_without_a_line(monkeypatch, capsys, end):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        try:
            code = end()
        except SystemExit as error:
            code = error.code
    assert (code, capsys.readouterr().err) == (141, "")

"""Addresses in a config: pinned to a commit, and replaced by local copies."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from tests.support import tiny
from tests.support.hub import forget
from tests.support.sets import bivlc
from vlc_jax.configs import default
from vlc_jax.errors import UsageError
from vlc_jax.run.workdir import SavedConfig, Workdir, write_json
from vlc_jax.setup import addresses, resolve


def test_addresses_of_the_hub_get_commit_and_hash_wherever_they_are(hub):
    model, data = hub.put("me/clip", {"a.bin": b"1"}), hub.put("me/set", {"a": b"1"}, "dataset")
    config = default.get_config()
    assert addresses.hashed(config) is config
    config.init_from = "hf://me/clip"
    config.evals = {"bivlc": {"root": "sets", "folder": "hf://datasets/me/set@main"}}
    config.lock()
    pinned = addresses.hashed(config)
    one = hashlib.sha256(b"1").hexdigest()  # of a single file
    assert pinned.init_from == f"hf://me/clip@{model}#sha256={one}"
    assert pinned.evals.bivlc.to_dict() == {
        "root": "sets", "folder": f"hf://datasets/me/set@{data}#sha256={one}"
    }  # fmt: skip
    assert addresses.hashed(pinned) is pinned
    local = addresses.localised(pinned)
    assert Path(local.evals.bivlc.folder, "a").read_bytes() == b"1"
    assert Path(local.init_from, "a.bin").read_bytes() == b"1"


def test_a_run_goes_on_only_with_the_revision_and_the_bytes_that_it_began_with(hub, tmp_path):
    first = hub.put("me/clip", {"model.safetensors": b"1", "a.json": b"{}"})
    config = tiny.get_config("steps=6")
    config.init_from = "hf://me/clip"
    setup = resolve(config, "weights")
    run = tmp_path / "run"
    workdir = Workdir(run)
    (run / "checkpoints" / "2").mkdir(parents=True)
    (run / "checkpoints" / "2" / "manifest.json").write_text("{}")
    workdir.claim(setup.config)
    workdir.write_env(input=addresses.hashes(setup.config))
    workdir.check_config(setup.config, False)
    workdir.check_data(addresses.hashes(setup.config), False)
    saved = json.loads((run / "config.json").read_text())
    begun = saved["init_from"]
    lines = [f"{hashlib.sha256(data).hexdigest()}  {name}\n"
             for name, data in (("a.json", b"{}"), ("model.safetensors", b"1"))]  # fmt: skip
    sha256 = hashlib.sha256("".join(lines).encode()).hexdigest()
    assert begun == f"hf://me/clip@{first}#sha256={sha256}"

    second = hub.put("me/clip", {"model.safetensors": b"2"})
    forget()
    later = resolve(config, "weights").config
    line = f"  init_from: {begun} -> hf://me/clip@{second}#"
    with pytest.raises(UsageError, match=line):
        workdir.check_config(later, False)

    # the same commit with other bytes: a hub that rewrites history, on a machine without the copy
    hub.commits[first] = {"model.safetensors": b"3", "a.json": b"{}"}
    shutil.rmtree(tmp_path / "copies")
    forget()
    config.init_from = f"hf://me/clip@{first}"
    rewritten = resolve(config, "weights").config
    with pytest.raises(UsageError, match=f"  init_from: {begun} -> hf://me/clip@{first}#"):
        workdir.check_config(rewritten, False)
    with pytest.raises(UsageError, match=f"  hf://me/clip@{first}/model.safetensors: "):
        workdir.check_data(addresses.hashes(rewritten), False)
    config.init_from = begun  # as --mode eval and load read it from config.json
    with pytest.raises(UsageError, match=f"config.init_from: .*{sha256}.*the repository was rewri"):
        resolve(config, "weights")

    # a run of a version that wrote the commit alone
    write_json(run / "config.json", {**saved, "init_from": f"hf://me/clip@{first}"})
    workdir.check_config(rewritten, False)
    workdir.close()


def test_a_set_in_parquet_is_read_from_the_hub(hub, tmp_path):
    bivlc.write(tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.rglob("*.parquet")}
    hub.put("me/bivlc", {f"data/{name}": content for name, content in files.items()}, "dataset")
    config = tiny.get_config("steps=6")
    here, there = {"root": str(tmp_path)}, {"folder": "hf://datasets/me/bivlc/data"}
    config.evals = ConfigDict({"here": {"reader": "bivlc", **here}, "bivlc": {**here, **there}})
    read = resolve(config, "eval").evaluation.benchmarks
    assert read["bivlc"].read().version == read["here"].read().version


def test_the_parameters_of_a_run_are_read_without_its_data(hub):
    commit = hub.put("me/set", {"a.csv": b"1"}, "dataset")
    config = tiny.get_config("steps=6")
    path = f"hf://datasets/me/set@{commit}/a.csv"
    config.evals = ConfigDict({"retrieval": {"split": "all", "path": path}})
    resolve(config, "weights")
    assert hub.requests == []


@pytest.mark.parametrize(
    "address", ["gs://bucket/set/a.csv", "hf://datasets/me/set@" + "0" * 40 + "/a.csv"]
)
def test_an_address_that_only_the_config_of_a_run_names_is_not_fetched(
    hub, tmp_path, monkeypatch, address
):
    config = tiny.get_config("steps=6").to_dict()
    config["evals"] = {"retrieval": {"split": "all", "path": address}}
    saved = SavedConfig(config, tmp_path / "run" / "config.json").lock()

    def fetched(path):
        monkeypatch.setattr(addresses, "copy_of", lambda name, address: "/a/copy")
        return addresses.localised(saved).evals.retrieval.path == "/a/copy"

    advice = f"--config.evals.retrieval.path={address}"
    monkeypatch.setattr("sys.argv", ["vlc-jax", "--mode=eval", f"--workdir={address}/run"])
    with pytest.raises(UsageError, match=f"config.json names {address} as .*{advice}$"):
        addresses.localised(saved)
    assert hub.requests == []
    # the parameters of a run are read without its data
    assert addresses.localised(saved, only_model=True) is saved
    monkeypatch.setattr("sys.argv", ["vlc-jax", "--mode=eval", advice])
    assert fetched(saved)
    # as it is after a training here
    monkeypatch.setattr("sys.argv", ["vlc-jax", "--mode=eval"])
    for name in ("stores/gs/bucket", "hub/datasets/me/set"):
        (tmp_path / "copies" / name).mkdir(parents=True)
    assert fetched(saved)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("init_from", "hf://me", "config.init_from: hf://me: addresses of the hub are"),
        ("init_from", "open_clip://ViT-B-32/opena", "did you mean 'openai'"),
        ("init_from", "http://me/clip", "addresses begin with gs://, .*hf://"),
    ],
)
def test_a_wrong_address_is_refused_with_its_field(field, value, message):
    config = default.get_config()
    config[field] = value
    with pytest.raises(UsageError, match=message):
        addresses.check(config)


def test_shards_of_the_hub_are_not_staged():
    config = default.get_config()
    config.input.source = "shards"
    config.input.source_options = {"path": "hf://datasets/me/set", "stage": "/tmp/stage"}
    with pytest.raises(UsageError, match=r"leave out config.input.source_options.stage"):
        addresses.check(config)

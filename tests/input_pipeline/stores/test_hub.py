"""Repositories of the hub: one format of weights, whole files with the right bytes, pinned."""

import hashlib
from pathlib import Path

import pytest
from huggingface_hub import constants

from tests.support.hub import forget, tree
from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.stores import fetch, hub_api
from vlc_jax.input_pipeline.stores import hub as client
from vlc_jax.models import variants

WEIGHTS = bytes(range(256)) * 20


def names(folder):
    files = (path for path in Path(folder).rglob("[!.]*") if path.is_file())
    return sorted(path.relative_to(folder).as_posix() for path in files)


def test_a_folder_has_one_format_of_weights_and_all_other_files(hub):
    commit = hub.put("me/clip", {
        "model.safetensors": WEIGHTS, "pytorch_model.bin": b"1", "tf_model.h5": b"1",
        "onnx/model.onnx": b"1", "original/model.pt": b"1", ".gitattributes": b"1",
        "config.json": b"{}", "vocabulary/merges.txt": b"a b", "optimizer.pt": b"1",
        "adapter_model.bin": b"1",
    })  # fmt: skip
    copy = fetch.local("hf://me/clip")
    others = ["adapter_model.bin", "config.json", "vocabulary/merges.txt"]
    assert names(copy) == sorted([*others, "model.safetensors"])
    assert (copy / "model.safetensors").read_bytes() == WEIGHTS
    assert client.pinned("hf://me/clip") == f"hf://me/clip@{commit}"
    of_weights = client.hashes("hf://me/clip")[f"hf://me/clip@{commit}/model.safetensors"]
    assert of_weights == hashlib.sha256(WEIGHTS).hexdigest()
    assert names(fetch.local("hf://me/clip/vocabulary")) == ["merges.txt"]


def test_an_index_brings_its_shards(hub):
    shards = {f"model-0000{i}-of-00002.safetensors": b"1" for i in (1, 2)}
    content = {**shards, "model.safetensors.index.json": b"{}", "pytorch_model.bin": b"1"}
    hub.put("me/big", content)
    copy = fetch.local("hf://me/big")
    assert names(copy) == sorted([*shards, "model.safetensors.index.json"])
    file = fetch.local("hf://me/big/model.safetensors.index.json")
    assert file == copy / "model.safetensors.index.json"


def test_a_file_of_a_model_comes_with_the_json_files_beside_it(hub):
    hub.put("me/clip", {"a/open_clip_model.safetensors": WEIGHTS, "a/config.json": b"{}",
                        "a/model.safetensors": b"1", "config.json": b"{}"})  # fmt: skip
    file = fetch.local("hf://me/clip/a/open_clip_model.safetensors")
    assert names(file.parent) == ["config.json", "open_clip_model.safetensors"]


def test_a_data_set_is_copied_whole_and_its_file_alone(hub):
    hub.put("me/set", {"data/a.parquet": b"1", "data/b.bin": b"2", "c.json": b"3"}, "dataset")
    file = fetch.local("hf://datasets/me/set/data/a.parquet")
    assert names(file.parents[1]) == ["data/a.parquet"]
    assert names(fetch.local("hf://datasets/me/set/data")) == ["a.parquet", "b.bin"]
    assert names(fetch.local("hf://datasets/me/set")) == ["c.json", "data/a.parquet", "data/b.bin"]


def test_revisions_of_every_form(hub):
    old = hub.put("me/set", {"a.csv": b"old"}, "dataset")
    hub.put("me/set", {"a.csv": b"new"}, "dataset")
    hub.put("me/set", {"a.csv": b"converted"}, "dataset", "refs/convert/parquet")
    hub.put("me/set", {"a.csv": b"branch"}, "dataset", "my/branch")
    for revision, content in (("", b"new"), (f"@{old}", b"old"), ("@my%2Fbranch", b"branch"),
                              ("@refs/convert/parquet", b"converted")):  # fmt: skip
        assert fetch.local(f"hf://datasets/me/set{revision}/a.csv").read_bytes() == content


def test_a_commit_that_is_here_is_read_without_network(hub, monkeypatch):
    hub.put("me/clip", {"model.safetensors": WEIGHTS})
    address = client.pinned("hf://me/clip")
    copy = fetch.local(address)
    hub.put("me/clip", {"model.safetensors": b"other"})
    forget()
    hub.requests.clear()
    assert fetch.local(address) == copy
    assert hub.requests == []
    assert fetch.local("hf://me/clip") != copy
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    forget()
    assert (fetch.local("hf://me/clip") / "model.safetensors").read_bytes() == b"other"
    with pytest.raises(ValueError, match="HF_HUB_OFFLINE is set"):
        fetch.local("hf://me/another")


def test_files_that_another_program_has_cached_are_linked(hub, monkeypatch):
    import huggingface_hub

    commit = hub.put("me/clip", {"model.safetensors": WEIGHTS, "config.json": b"{}"})
    folder = Path(constants.HF_HUB_CACHE) / "models--me--clip"
    for part in ("blobs", "refs", f"snapshots/{commit}"):
        (folder / part).mkdir(parents=True)
    for entry in tree(hub.commits[commit], "", True):
        blob = folder / "blobs" / entry.get("lfs", entry)["oid"]
        blob.write_bytes(hub.commits[commit][entry["path"]])
        (folder / "snapshots" / commit / entry["path"]).symlink_to(blob)
    (folder / "refs" / "main").write_text(commit)
    assert huggingface_hub.try_to_load_from_cache("me/clip", "config.json")  # its layout is this
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    copy = fetch.local("hf://me/clip")
    assert (copy / "model.safetensors").is_symlink()
    assert names(copy) == ["config.json", "model.safetensors"]
    assert hub.requests == []


def test_a_cut_transfer_goes_on_in_this_start_and_in_the_next(hub):
    hub.put("me/clip", {"model.safetensors": WEIGHTS, "config.json": b"{}"})
    hub.cut["model.safetensors"] = 1000
    with pytest.raises(stores.StoreError, match=r"me/clip/resolve/.*peer closed"):
        fetch.local("hf://me/clip")
    asked = [span for _, path, span in hub.requests if path.endswith(".safetensors")]
    assert asked == [None, *["bytes=1000-"] * 5]
    hub.cut.clear()
    hub.requests.clear()
    forget()
    copy = fetch.local("hf://me/clip")
    assert (copy / "model.safetensors").read_bytes() == WEIGHTS
    asked = [(path.rsplit("/", 1)[1], span) for _, path, span in hub.requests if "resolve" in path]
    assert asked == [("model.safetensors", "bytes=1000-")]


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_bytes_with_another_hash_are_refused_and_fetched_again(hub, name):
    hub.put("me/clip", {"model.safetensors": WEIGHTS, "config.json": b"{}"})
    hub.damaged.add(name)
    with pytest.raises(stores.StoreError, match="have another hash than"):
        fetch.local("hf://me/clip")
    hub.damaged.clear()
    forget()
    assert (fetch.local("hf://me/clip") / "config.json").read_bytes() == b"{}"


def test_a_copy_that_was_changed_or_removed_is_made_again(hub):
    hub.put("me/clip", {"model.safetensors": WEIGHTS, "config.json": b"{}"})
    copy = fetch.local("hf://me/clip")
    (copy / "model.safetensors").write_bytes(b"changed")
    (copy / "config.json").unlink()
    forget()
    hub.requests.clear()
    fetch.local("hf://me/clip")
    assert (copy / "model.safetensors").read_bytes() == WEIGHTS
    assert sorted(hub.downloads()) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("hf://me", "addresses of the hub are hf://OWNER/NAME"),
        ("hf://spaces/me/app", "addresses of the hub are"),
        *((f"hf://{out}", "addresses of the hub are") for out in ("../x", "../..", "./x")),
        ("hf://datasets/a/..", "addresses of the hub are"),
        ("hf://me/clip/../other", "no '.' or '..'"),
        ("hf://me/none", "no such repository, or it is private: set HF_TOKEN"),
        ("hf://me/gated", "its owner gives access on its page"),
        ("hf://me/clip@old", "the repository has no such revision"),
        ("hf://me/clip/model.safetensor", r"did you mean 'model.safetensors'\?"),
        ("hf://me/hidden", "has no files"),
        ("open_clip://ViT-B-32/opena", r"did you mean 'openai'\?"),
        ("open_clip://ViT-B32/openai", r"did you mean 'ViT-B-32'\?"),
        ("open_clip://convnext_base/laion400m", "is no published name of a model that is here"),
    ],
)
def test_what_is_not_there_is_one_line(hub, address, message):
    hub.put("me/clip", {"model.safetensors": WEIGHTS})
    hub.put("me/gated", {"model.safetensors": WEIGHTS})
    hub.closed.add("me/gated")
    # a server that lists a path out of the copy
    hub.put("me/hidden", {"../a.json": b"1", ".b": b"1", "/etc/c": b"1"})
    with pytest.raises(ValueError, match=message) as caught:
        fetch.local(address)
    assert "\n" not in str(caught.value)


def test_a_hub_that_is_away_is_a_fault_of_the_store(hub, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    cure = "hf://me/clip.*: no connection to its server .*; without a network, copy its files from"
    with pytest.raises(stores.StoreError, match=cure):
        fetch.local("hf://me/clip")


OPEN_CLIP = {"open_clip_model.safetensors": WEIGHTS, "open_clip_pytorch_model.bin": b"1",
             "model.safetensors": b"1", "config.json": b"{}"}  # fmt: skip
QUICK = {True: b'{"model_cfg": {"quick_gelu": true}}', False: b'{"model_cfg": {}}'}


def test_a_published_name_is_its_weights_config_and_tokenizer(hub):
    files = {**OPEN_CLIP, "open_clip_config.json": QUICK[True]}
    commit = hub.put("timm/vit_base_patch32_clip_224.openai", files)
    hub.put("openai/clip-vit-base-patch32", {"tokenizer.json": b"{}", "pytorch_model.bin": b"1"})
    copy = fetch.local("open_clip://ViT-B-32/OpenAI")
    expected = ["open_clip_config.json", "open_clip_model.safetensors", "tokenizer.json"]
    assert names(copy) == expected
    pinned = client.pinned("open_clip://ViT-B-32/openai")
    assert pinned == f"open_clip://ViT-B-32/openai@{commit}"
    assert len(client.hashes(pinned)) == 3
    hub.put("timm/vit_base_patch32_clip_224.openai", {**files, "merges.txt": b"a b"})
    forget()
    assert names(fetch.local(pinned)) == expected
    copy = fetch.local("open_clip://ViT-B-32-quickgelu/openai")
    assert names(copy) == ["merges.txt", *expected[:2]]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"open_clip_config.json": QUICK[True], **OPEN_CLIP}, "has the activation gelu"),
        ({"open_clip_config.json": b"[]", **OPEN_CLIP}, "is damaged"),
        (OPEN_CLIP, "has no config of open_clip"),
        ({"open_clip_config.json": QUICK[False]}, "has no weights of open_clip"),
    ],
)
def test_a_repository_that_is_not_what_its_name_says_is_refused(hub, files, message):
    hub.put("laion/CLIP-ViT-B-32-laion2B-s34B-b79K", {**files, "merges.txt": b"a b"})
    with pytest.raises(ValueError, match=message):
        fetch.local("open_clip://ViT-B-32/laion2b_s34b_b79k")


def test_every_published_name_has_a_variant():
    rows = client.open_clip_names.ROWS.values()
    assert {row.variant for row in rows} <= variants.VARIANTS.keys()
    assert {row.activation for row in rows} == {"quick_gelu", "gelu", None}
    assert all(row.repository.count("/") == 1 for row in rows)
    # of variants without an activation of their own the name must have one
    families = {variants.VARIANTS[row.variant].family for row in rows if row.activation is None}
    assert families == {
        *("siglip", "siglip_i18n", "eva01", "eva02", "eva02_e", "roberta", "xlm_roberta"),
        *("pe", "pe_b", "pe_g", "clipa"),
    }


def test_a_folder_is_pushed_in_one_commit_to_a_private_one(hub, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "README.md").write_text("# a model")
    (tmp_path / "out" / "model.safetensors").write_bytes(WEIGHTS)
    hub_api.check_push("me/new")
    address = hub_api.push(tmp_path / "out", "me/new")
    assert hub.private
    assert (fetch.local(address) / "model.safetensors").read_bytes() == WEIGHTS


@pytest.mark.parametrize(
    ("token", "repository", "message"),
    [
        ("", "me/new", "no token; set HF_TOKEN or run hf auth login"),
        ("wrong", "me/new", "the hub refuses the token"),
        ("secret", "new", "is OWNER/NAME; got 'new'"),
    ],
)
def test_a_push_that_cannot_be_is_refused_before(
    hub, monkeypatch, tmp_path, token, repository, message
):
    monkeypatch.setenv("HF_TOKEN", token)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    with pytest.raises(ValueError, match=message):
        hub_api.check_push(repository)

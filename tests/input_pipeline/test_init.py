"""The door: names and options that are wrong say what is right; importing it is cheap."""

import subprocess
import sys

import pytest

from vlc_jax.input_pipeline.sources import SOURCES, make_source
from vlc_jax.input_pipeline.tokenizers import TOKENIZERS, make_tokenizer

HEAVY = ("jax", "grain", "tensorflow_datasets", "tensorflow", "sklearn", "tokenizers", "matplotlib")


def test_importing_the_package_imports_no_heavy_library():
    script = f"import sys, vlc_jax.input_pipeline; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_an_unknown_name_lists_the_known_and_the_nearest():
    with pytest.raises(
        ValueError, match=r"unknown source 'scene'; did you mean 'scenes'\? known: "
    ):
        make_source("scene", "train")
    with pytest.raises(ValueError, match=r"unknown tokenizer 'clp'; did you mean 'clip'"):
        make_tokenizer("clp", 77)


def test_an_unknown_or_missing_option_lists_the_known():
    with pytest.raises(ValueError, match=r"no option 'sise' \(did you mean 'size'\?\); known:"):
        make_source("digits", "train", sise=32)
    with pytest.raises(ValueError, match="source 'records' needs the option 'path'"):
        make_source("records", "train")
    with pytest.raises(ValueError, match="tokenizer 'hf' needs the option 'path'"):
        make_tokenizer("hf", 77)


def test_sources_take_a_split_and_tokenizers_a_length_by_name():
    import inspect

    for source in SOURCES.values():
        assert "split" in inspect.signature(source).parameters
    for tokenizer in TOKENIZERS.values():
        assert "context_length" in inspect.signature(tokenizer).parameters

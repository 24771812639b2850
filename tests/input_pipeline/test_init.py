"""The door: names and options that are wrong say what is right; importing it is cheap."""

import subprocess
import sys

import pytest

from vlc_jax.input_pipeline.sources import make_source
from vlc_jax.input_pipeline.tokenizers import make_tokenizer

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

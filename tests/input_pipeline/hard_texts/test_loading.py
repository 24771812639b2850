"""Threads of a loader share a tagger and a language model; one of them loads it for all."""

import concurrent.futures
import importlib.metadata
import importlib.util
import sys
import threading
import time
import types

import numpy as np
import pytest

from vlc_jax.input_pipeline.hard_texts.fill_mask import SvlcFillMask
from vlc_jax.input_pipeline.hard_texts.taggers import make_tagger

CAPTION = "a red circle"


class FillMask:
    """As much of transformers' pipeline as is called: it always proposes "square"."""

    tokenizer = types.SimpleNamespace(mask_token="[MASK]")

    def __call__(self, text, top_k):
        return [{"token_str": "square", "sequence": text.replace("[MASK]", "square")}]


class Document(list):
    """A document of spaCy without words."""

    noun_chunks = ()


@pytest.fixture
def loads(monkeypatch, tmp_path):
    """Whether another thread was loading, for each time that spaCy or transformers was asked to."""
    busy, found = threading.Lock(), []

    def load(made):
        is_alone = busy.acquire(blocking=False)
        found.append(is_alone)
        time.sleep(0.05)
        if is_alone:
            busy.release()
        return made

    modules = {
        "torch": types.ModuleType("torch"),
        "spacy": types.SimpleNamespace(load=lambda *a, **k: load(lambda text: Document())),
        "transformers": types.SimpleNamespace(pipeline=lambda *a, **k: load(FillMask())),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1")
    (tmp_path / "config.json").write_text("{}")
    return found


def test_the_first_calls_of_many_threads_load_once(loads, tmp_path):
    tagger = make_tagger("spacy:pipeline")
    filling = SvlcFillMask(str(tmp_path), tagger="scenes:scenes-mini", mode="authors")
    for call in (lambda: tagger(CAPTION), lambda: filling(CAPTION, np.random.default_rng(0), 1)):
        loads.clear()
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            results = [each.result() for each in [threads.submit(call) for _ in range(8)]]
        assert loads == [True]
        assert len({str(result) for result in results}) == 1
    assert "square" in str(results)

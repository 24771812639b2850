"""Features of every distinct image and text of an evaluation, computed once per parameters.

Benchmarks share images (REPLACE, SWAP and ARO those of Visual Genome) and captions. What was
encoded for one of them is kept, by what it shows or reads (`image_key`), for the others; in files,
for later runs too.

On a CPU in float32 the scores of the dot product and of LABCLIP do not depend, to the last bit, on
config.eval.batch_size, on the number of simulated devices (unsharded parameters), on the order of
cases, or on what else is evaluated: XLA's matrix products round a row in the same way wherever it
stands, but otherwise in an array of another height, so that every array has one height there
(ROWS_ON_CPU on each device, and the blocks of scores). Another machine, number of threads or
version of JAX may round otherwise. Accelerators take config.eval.batch_size as it is.
"""

import hashlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from vlc_jax.devices import runtime, sharding
from vlc_jax.encode import answers
from vlc_jax.encode.encoder import THREADS, BatchEncoder, EvaluationEncoder
from vlc_jax.encode.feature_cache import FeatureFiles, FeatureMemory, make_folder
from vlc_jax.encode.score_blocks import (
    on_short_texts,
    score_in_blocks,
    score_options_in_blocks,
    sharing_beginnings,
)
from vlc_jax.evaluators import Decoding, Scorer
from vlc_jax.input_pipeline.benchmarks import Benchmark
from vlc_jax.input_pipeline.images.image_key import KEY_BYTES, ImageKeys
from vlc_jax.models.parameters import fingerprint
from vlc_jax.types import ImageFeatures, TextFeatures
from vlc_jax.types.setup import Setup

ROWS_ON_CPU = 32  # per device and forward pass; 256 save 15 % of the CPU time of the mini model
MEMORY = 2 * 2**30  # bytes on the host, per tower, for features with tokens; pooled ones are small
SCORE_BLOCK = 512  # images, and texts, whose pooled features are scored at a time
PAIR_BLOCK = 1024  # pairs of pooled features
HEAD_BLOCK = 64  # images that a head scores at a time, each with its own texts


class OnceEncoder:
    """A model as evaluation sees it, which encodes every distinct image and text once.

    Args:
      setup: of the run.
      before_batch, call: as in BatchEncoder.
      is_writer: whether this process writes the files of config.eval.cache.

    Raises UsageError if that folder cannot be written.
    """

    def __init__(
        self,
        setup: Setup,
        before_batch: Callable[[], None] = lambda: None,
        call: Callable[[Callable[[], Any]], Any] = lambda work: work(),
        is_writer: bool = True,
    ):
        groups = sharding.row_groups(setup.mesh)
        rows = ROWS_ON_CPU * groups if runtime.is_cpu() else setup.evaluation.batch_size
        self._encoder = EvaluationEncoder(setup, before_batch, call, rows, cuts_texts=True)
        self.transform, self.patch_maps = self._encoder.transform, self._encoder.patch_maps
        pooled = setup.model.head.reads_pooled
        self._has_tokens = not all(pooled)
        self._setup, self._prompt = setup, answers.prompt(setup)
        self._answers = answers.Answers(setup) if answers.can_answer(setup) else None
        found = runtime.hardware()
        common = {
            "head": repr(setup.model.head),
            "rows": rows // groups,
            "devices": [*found["devices"], found["cpu"] if runtime.is_cpu() else ""],
            "jax": jax.__version__,
        }
        of_image = {
            "tower": repr(setup.model.image),
            "pixels": repr(self.transform),
            **setup.evaluation.inputs["image"],
        }
        of_text = {
            "tower": repr(setup.model.text),
            "tokenizer": setup.tokenizer.fingerprint,
            **setup.evaluation.inputs["text"],
        }
        towers = zip(
            ("image", "text"),
            (self._encoder.images, self._encoder.texts),
            (ImageKeys(), text_key),
            (common | of_image, common | of_text),
            pooled,
            strict=True,
        )
        folder = Path(setup.evaluation.cache) if setup.evaluation.cache else None
        if folder and is_writer:
            make_folder(folder)
        self._images, self._texts = (_Tower(*tower, call, folder, is_writer) for tower in towers)

    def scorer(self, variables: Any) -> Scorer:
        """The model with these variables, for the evaluators. Features of a tower whose parameters
        are those of the last call (a frozen one) are still known."""
        for tower in (self._images, self._texts):
            tower.use(variables)
        # bound here and kept nowhere else: training must not hold a copy on its devices
        images, texts = partial(self._images, variables), partial(self._texts, variables)
        score = self._on_host(self._encoder.score, variables)
        score_options = self._on_host(self._encoder.score_options, variables)
        tokens = self._encoder.token_functions(variables)
        if self._has_tokens:
            # DCSM standardises over all that are scored together: `score` has no blocks here
            in_blocks = partial(score_options_in_blocks, score_options, rows=HEAD_BLOCK)
            if self._setup.model.head.requests[1].tokens != "ids":
                return Scorer(images, texts, score, in_blocks, *tokens)

            def own_texts(image: ImageFeatures, text: TextFeatures) -> np.ndarray:
                rows, of_block = _block(len(image.pooled)), score_options
                if self._setup.model.head.reads_shared:
                    of_block = sharing_beginnings(score_options, image, text)
                return score_options_in_blocks(of_block, image, text, rows)

            def written(image: ImageFeatures, questions: Sequence[str], how: Decoding) -> list[str]:
                return self._answers(variables, image, questions, how, _block(len(questions)))

            short = (on_short_texts(score), on_short_texts(own_texts))
            more = {"answers": written if self._answers else None}
            return Scorer(images, texts, *short, *tokens, **more, prompt=self._prompt)

        def options(image: ImageFeatures, text: TextFeatures) -> np.ndarray:
            # as pairs: the number of options must not change how a score is rounded
            number = len(text.pooled) // len(image.pooled)
            pairs = ImageFeatures(np.repeat(image.pooled, number, axis=0))
            scores = score_options_in_blocks(score_options, pairs, text, PAIR_BLOCK)
            return scores.reshape(-1, number)

        in_blocks = partial(score_in_blocks, score, height=SCORE_BLOCK, width=SCORE_BLOCK)
        return Scorer(images, texts, in_blocks, options, *tokens)

    def prepare(self, variables: Any, benchmark: Benchmark) -> None:
        """Encodes what the benchmark asks for in whole batches, instead of few at a time as its
        protocol needs them; features with tokens are too large for that.

        variables: those of the last `scorer`.
        """
        if not self._images.is_bounded:
            images = [image for case in benchmark.cases for image in case.images]
            self._images.prepare(variables, images)
        if not self._texts.is_bounded:
            self._texts.prepare(variables, benchmark.texts)

    @property
    def facts(self) -> dict[str, Any]:
        """Facts that features depend on, of both towers, as JSON: weights of the last `scorer`,
        dtype and shape of the tower, pixels, normalisation, tokenizer, devices."""
        found = {"image": self._images.facts, "text": self._texts.facts}
        return json.loads(json.dumps(found, default=str))

    def _on_host(self, score: Callable[..., Any], variables: Any) -> Callable[..., np.ndarray]:
        return lambda image, text: np.asarray(score(variables, image, text))


def _block(count: int) -> int:
    """Images that a decoder reads at a time, of `count`: a block that is filled up costs as much
    as a full one."""
    return min(HEAD_BLOCK, max(8, 1 << (count - 1).bit_length()))


class _Tower:
    """The features of one tower, by key.

    name: its part of the parameters.   facts: all that features depend on beside these and the key.
    is_pooled: whether features are one vector each; else those with tokens, of which MEMORY bytes
    are kept and none in files.   folder: of files, None without.
    """

    def __init__(
        self,
        name: str,
        encode: BatchEncoder,
        key: Callable[[Any], bytes],
        facts: Mapping[str, Any],
        is_pooled: bool,
        call: Callable[[Callable[[], Any]], Any],
        folder: Path | None,
        is_writer: bool,
    ):
        self._name, self._encode, self._key, self._facts = name, encode, key, facts
        self._call, self._is_writer = call, is_writer
        self.is_bounded = not is_pooled
        self._folder = folder if is_pooled else None
        self._memory = FeatureMemory(None if is_pooled else MEMORY)
        self._files: FeatureFiles | None = None
        self._weights = ""  # fingerprint of the parameters that the features in memory are of
        # id of an item -> the item, which keeps its id its own, and its key: of the last `prepare`
        self._known: dict[int, tuple[Any, bytes]] = {}

    @property
    def facts(self) -> dict[str, Any]:
        """Facts that the features in memory depend on."""
        return {"weights": self._weights, **self._facts}

    def use(self, variables: Any) -> None:
        """Forgets the features of other parameters than these."""
        own = {key: variables["params"].get(key) for key in (self._name, "head")}
        weights = fingerprint([own, variables.get("batch_stats")])
        if weights != self._weights:
            self._memory.clear()
            self._files = self._open(weights)
            self._weights = weights

    def __call__(self, variables: Any, items: Sequence[Any]) -> Any:
        """Features of all items, in their order."""
        keys = self._keys(items)
        rows = self._rows(variables, keys, items)
        return jax.tree.map(lambda *arrays: np.stack(arrays), *(rows[key] for key in keys))

    def prepare(self, variables: Any, items: Sequence[Any]) -> None:
        """Computes the features that are not known yet."""
        self._known = {}
        keys = self._keys(items)
        self._known = {id(item): (item, key) for item, key in zip(items, keys, strict=True)}
        self._rows(variables, keys, items)

    def _keys(self, items: Sequence[Any]) -> list[bytes]:
        if all(id(item) in self._known for item in items):
            return [self._known[id(item)][1] for item in items]

        def some(items: Sequence[Any]) -> list[bytes]:
            return [self._key(item) for item in items]

        def all_keys() -> list[bytes]:
            # few tasks: a task for each item costs more than its key, if that is known
            size = -(-len(items) // THREADS)
            with ThreadPoolExecutor(max_workers=THREADS) as pool:
                parts = pool.map(some, (items[i : i + size] for i in range(0, len(items), size)))
                return list(itertools.chain.from_iterable(parts))

        return self._call(all_keys) if items else []

    def _rows(
        self, variables: Any, keys: Sequence[bytes], items: Sequence[Any]
    ) -> dict[bytes, Any]:
        # All processes meet the same keys in the same order, hence have the same ones in memory and
        # encode the same batches.
        found = {key: self._memory.get(key) for key in keys}
        missing = {k: item for k, item in zip(keys, items, strict=True) if found[k] is None}
        names = list(missing)
        if not missing:
            return found
        try:
            for places, features in self._encode.batches(variables, list(missing.values())):
                for row, place in enumerate(places):
                    # copies: a view would keep the features of the whole batch
                    one = jax.tree.map(lambda x, row=row: x[row].copy(), features)
                    found[names[place]] = one
                    self._memory.put(names[place], one)
                    if self._files:
                        self._files.put(names[place], one.pooled)
                if self._files:
                    self._files.flush(is_due=False)
        finally:
            if self._files:
                self._files.flush()  # what a stopped evaluation has computed, too
        return found

    def _open(self, weights: str) -> FeatureFiles | None:
        """The files of these weights, their features in memory; None without a folder."""
        if self._folder is None:
            return None
        facts = {"weights": weights, **self._facts}
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode())
        folder = self._folder / f"{self._name}-{digest.hexdigest()[:16]}"
        files = FeatureFiles(folder, facts, self._is_writer)
        found = dict(files.read())
        keys = hashlib.sha256(b"".join(sorted(found))).digest()
        if sharding.same_everywhere(keys):  # else some process would wait for a batch of others
            kind = {"image": ImageFeatures, "text": TextFeatures}[self._name]
            for key, pooled in found.items():
                self._memory.put(key, kind(pooled))
        return files


def text_key(text: str) -> bytes:
    """Key of a text."""
    # as a table may have them: lone surrogates, which are no UTF-8
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:KEY_BYTES]

"""Encodes every distinct image and text of an evaluation once per set of parameters.

Benchmarks share images (REPLACE, SWAP and ARO use Visual Genome) and captions. Features are cached
by content (`image_key`, `text_key`), in memory and optionally in files for later runs.

On a CPU in float32 the scores of the dot product and of LABCLIP do not depend, to the last bit, on
config.eval.batch_size, on the number of simulated devices (unsharded parameters), on the order of
cases, or on the other benchmarks. XLA's matrix products round a row identically at every position,
but not in arrays of another height; so all arrays on a CPU have one height (ROWS_ON_CPU on each
device, and the blocks of scores). Another machine, number of threads or version of JAX may round
differently. Accelerators use config.eval.batch_size unchanged.
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
    sharing_prefixes,
)
from vlc_jax.evaluators import Decoding, Scorer
from vlc_jax.input_pipeline.benchmarks import Benchmark
from vlc_jax.input_pipeline.images.image_key import KEY_BYTES, ImageKeys
from vlc_jax.input_pipeline.record import Caption
from vlc_jax.models.parameters import fingerprint
from vlc_jax.types import ImageFeatures, TextFeatures
from vlc_jax.types.setup import Setup

ROWS_ON_CPU = 32  # per device and forward pass; 256 save 15 % of the CPU time of the mini model
MEMORY = 2 * 2**30  # bytes of host memory per tower for token features; pooled ones are small
SCORE_BLOCK = 512  # images, and texts, of a block of scores of pooled features
PAIR_BLOCK = 1024  # pairs of pooled features scored at a time
HEAD_BLOCK = 64  # images, each with its texts, that a head scores at a time


class OnceEncoder:
    """Encoder of evaluation that encodes every distinct image and text once.

    Args:
      setup: of the run.
      before_batch, call: as in BatchEncoder.
      is_writer: whether this process writes the files of config.eval.cache.

    Raises UsageError if config.eval.cache cannot be written.
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
        hardware = runtime.hardware()
        common = {
            "head": repr(setup.model.head),
            "rows": rows // groups,
            "devices": [*hardware["devices"], hardware["cpu"] if runtime.is_cpu() else ""],
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
        """The model with these variables, for the evaluators.

        The cache of a tower survives as long as its parameters do not change (a frozen tower).
        """
        for tower in (self._images, self._texts):
            tower.use(variables)
        # only the returned Scorer references the variables: training must not hold a second copy
        images, texts = partial(self._images, variables), partial(self._texts, variables)
        score = self._on_host(self._encoder.score, variables)
        score_options = self._on_host(self._encoder.score_options, variables)
        tokens = self._encoder.token_functions(variables)
        if self._has_tokens:
            # `score` without blocks: DCSM standardises over all pairs that are scored together
            in_blocks = partial(score_options_in_blocks, score_options, rows=HEAD_BLOCK)
            if self._setup.model.head.requests[1].tokens != "ids":
                return Scorer(images, texts, score, in_blocks, *tokens)

            def score_own_texts(image: ImageFeatures, text: TextFeatures) -> np.ndarray:
                rows, of_block = _block(len(image.pooled)), score_options
                if self._setup.model.head.reads_shared:
                    of_block = sharing_prefixes(score_options, image, text)
                return score_options_in_blocks(of_block, image, text, rows)

            def answer(image: ImageFeatures, questions: Sequence[str], how: Decoding) -> list[str]:
                return self._answers(variables, image, questions, how, _block(len(questions)))

            short = (on_short_texts(score), on_short_texts(score_own_texts))
            more = {"answers": answer if self._answers else None}
            return Scorer(images, texts, *short, *tokens, **more, prompt=self._prompt)

        def options(image: ImageFeatures, text: TextFeatures) -> np.ndarray:
            # as pairs, so that the rounding of a score does not depend on the number of options
            number = len(text.pooled) // len(image.pooled)
            pairs = ImageFeatures(np.repeat(image.pooled, number, axis=0))
            scores = score_options_in_blocks(score_options, pairs, text, PAIR_BLOCK)
            return scores.reshape(-1, number)

        in_blocks = partial(score_in_blocks, score, height=SCORE_BLOCK, width=SCORE_BLOCK)
        return Scorer(images, texts, in_blocks, options, *tokens)

    def prepare(self, variables: Any, benchmark: Benchmark) -> None:
        """Encodes a benchmark's images and texts ahead, in full batches.

        Its protocol requests only a few at a time. Token features are too large for this.
        variables: of the last `scorer`.
        """
        if not self._images.is_bounded:
            images = [image for case in benchmark.cases for image in case.images]
            self._images.prepare(variables, images)
        if not self._texts.is_bounded:
            self._texts.prepare(variables, benchmark.texts)

    @property
    def facts(self) -> dict[str, Any]:
        """Facts that the features of both towers depend on, as JSON.

        Weights of the last `scorer`, tower, pixels, normalisation, tokenizer and devices.
        """
        facts = {"image": self._images.facts, "text": self._texts.facts}
        return json.loads(json.dumps(facts, default=str))

    def _on_host(self, score: Callable[..., Any], variables: Any) -> Callable[..., np.ndarray]:
        return lambda image, text: np.asarray(score(variables, image, text))


def _block(count: int) -> int:
    """Number of images that a decoder reads at a time, of `count`.

    The next power of two from 8 to HEAD_BLOCK: a padded block costs as much as a full one.
    """
    return min(HEAD_BLOCK, max(8, 1 << (count - 1).bit_length()))


class _Tower:
    """Cache of one tower's features, by key of the image or text.

    name: of the tower in the parameters.   facts: all that features depend on besides parameters
      and key.
    is_pooled: whether features are one vector each. Otherwise they have tokens: the cache is
      limited to MEMORY bytes and has no files.
    folder: of the files; None: no files.
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
        self._weights = ""  # fingerprint of the parameters of the features in memory
        # id(item) -> (item, key), of the last `prepare`; the reference keeps the id from reuse
        self._known: dict[int, tuple[Any, bytes]] = {}

    @property
    def facts(self) -> dict[str, Any]:
        """Facts that the features in memory depend on."""
        return {"weights": self._weights, **self._facts}

    def use(self, variables: Any) -> None:
        """Clears the cache if it is of other parameters than these."""
        params = {key: variables["params"].get(key) for key in (self._name, "head")}
        weights = fingerprint([params, variables.get("batch_stats")])
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
        """Computes the features that are not in the cache."""
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
            # THREADS tasks, since a task per item costs more than a memoised key
            size = -(-len(items) // THREADS)
            with ThreadPoolExecutor(max_workers=THREADS) as pool:
                parts = pool.map(some, (items[i : i + size] for i in range(0, len(items), size)))
                return list(itertools.chain.from_iterable(parts))

        return self._call(all_keys) if items else []

    def _rows(
        self, variables: Any, keys: Sequence[bytes], items: Sequence[Any]
    ) -> dict[bytes, Any]:
        # All processes see the same keys in the same order, hence have the same features in memory
        # and encode the same batches.
        rows = {key: self._memory.get(key) for key in keys}
        missing = {k: item for k, item in zip(keys, items, strict=True) if rows[k] is None}
        missing_keys = list(missing)
        if not missing:
            return rows
        try:
            for indices, features in self._encode.batches(variables, list(missing.values())):
                for row, index in enumerate(indices):
                    key = missing_keys[index]
                    # a copy: a view would keep the features of the whole batch in memory
                    rows[key] = jax.tree.map(lambda x, row=row: x[row].copy(), features)
                    self._memory.put(key, rows[key])
                    if self._files:
                        self._files.put(key, rows[key].pooled)
                if self._files:
                    self._files.flush(is_due=False)
        finally:
            if self._files:
                self._files.flush()  # also the features of a stopped evaluation
        return rows

    def _open(self, weights: str) -> FeatureFiles | None:
        """Opens the files of these weights and reads them into memory; None without a folder."""
        if self._folder is None:
            return None
        facts = {"weights": weights, **self._facts}
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode())
        folder = self._folder / f"{self._name}-{digest.hexdigest()[:16]}"
        files = FeatureFiles(folder, facts, self._is_writer)
        vectors = dict(files.read())
        keys = hashlib.sha256(b"".join(sorted(vectors))).digest()
        # unless all processes read the same keys, their batches differ and they wait for each other
        if sharding.same_everywhere(keys):
            kind = {"image": ImageFeatures, "text": TextFeatures}[self._name]
            for key, pooled in vectors.items():
                self._memory.put(key, kind(pooled))
        return files


def text_key(text: Caption) -> bytes:
    """Key of a text."""
    # else the caption "[[...]]" and the conversation that files write so would share a key
    text = text if isinstance(text, str) else f"conversation {text}"
    # texts of a table may have lone surrogates, which UTF-8 refuses
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:KEY_BYTES]

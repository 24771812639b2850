"""Trial of a tokenizer file in a child process with limits, before this process loads it.

The libraries are native code: a file of 1 KB can abort the process (signal 6), take all memory, or
panic with an exception that is no `Exception`.
"""

import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Sequence

MEMORY = 4 * 2**30  # bytes of address space; a vocabulary of 256,000 tokens takes 1/2 GB
SECONDS = 30  # of the processor; that vocabulary takes 2 s
# Both directions on texts, special tokens with and without; -S: the parent's sys.path is enough
_PROGRAM = """
import json, resource, sys
kind, memory, seconds, sys.path, texts = json.loads(sys.argv[1])
limits = {resource.RLIMIT_AS: memory, resource.RLIMIT_CPU: seconds, resource.RLIMIT_CORE: 0}
for limit, value in limits.items():
    hard = resource.getrlimit(limit)[1]  # of the parent; only lower limits are allowed
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(limit, (value, value))
data = sys.stdin.buffer.read()
try:
    if kind == "tokenizers":
        import tokenizers
        library = tokenizers.Tokenizer.from_str(data.decode("utf-8"))
        library.no_truncation()
        library.no_padding()
        library.get_vocab(with_added_tokens=True)
        for special in (False, True):
            try:
                for encoding in library.encode_batch_fast(texts, add_special_tokens=special):
                    library.decode(encoding.ids, skip_special_tokens=True)
            except Exception:
                pass  # a character that it has no token for; panics are no Exceptions
    else:
        import sentencepiece
        library = sentencepiece.SentencePieceProcessor(model_proto=data)
        library.id_to_piece(list(range(library.vocab_size())))
        for ids in library.encode(texts):
            library.decode(ids)
except BaseException as error:
    print(f"{type(error).__name__}: {error}"[:300])
    sys.exit(1)
"""


# sha256 of a file -> result of its trial
_results: dict[bytes, str] = {}


def problem(kind: str, data: bytes, texts: Sequence[str]) -> str:
    """Why the library `kind` ("tokenizers" or "sentencepiece") cannot read a file's bytes, or
    encode and decode the texts; "" if it can. A child process tries a file once."""
    key = hashlib.sha256(data).digest()
    if key not in _results:
        _results[key] = _try(kind, data, texts)
    return _results[key]


def _try(kind: str, data: bytes, texts: Sequence[str]) -> str:
    request = json.dumps([kind, MEMORY, SECONDS, sys.path, texts])
    child = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _PROGRAM, request],
        input=data,
        capture_output=True,
        # threads would take address space, a stack and a heap each
        env={"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"},
        check=False,
    )
    if child.returncode == 0:
        return ""
    if reason := " ".join(child.stdout.decode("utf-8", "replace").split()):
        return reason
    how = f"exit code {child.returncode}"
    if child.returncode < 0:
        how = signal.Signals(-child.returncode).name
    return (
        f"the library {kind} ended with {how}, of a fault or at the limits of {SECONDS} s and "
        f"{MEMORY / 2**30:g} GB"
    )

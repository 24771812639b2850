"""Worker processes of the loader, seen from a program that uses them."""

import os
import subprocess
import sys
import textwrap
import time

import pytest


def run_script(tmp_path, script):
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(script))
    return subprocess.Popen(
        [sys.executable, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


PROGRAM = """
    import os, sys
    from vlc_jax.input_pipeline import batch, record, tokenizers
    from vlc_jax.input_pipeline.images import image_ops, transforms
    from vlc_jax.input_pipeline.loader import loader
    print("jax without a loader:", "jax" in sys.modules, flush=True)
    import jax                                  # as a training program does
    if __name__ != "__main__":
        raise SystemExit("the worker imported the main module")

    class Probe:
        fingerprint = "probe"
        def __len__(self):
            return 64
        def __getitem__(self, index):
            import numpy as np
            jax_here = sys.modules.get("jax") is not None
            signals = __import__("signal").getsignal(15).name
            told = f"{jax_here} {os.environ.get('JAX_PLATFORMS')} {os.getppid()} {signals}"
            return record.Record(told, np.zeros((8, 8, 3), np.uint8), ["one"])

    if __name__ == "__main__":
        words = tokenizers.make_tokenizer("words", 4, words=("one",))
        batches = loader.make_train(
            Probe(), words, transforms.ImageTransform(8),
            batch_size=4, seed=0, workers=1, threads=1,
        )
        expected = batch.hash_id(f"False cpu {os.getpid()} SIG_IGN")
        print("worker as expected:", (next(batches)["id"] == expected).all(), flush=True)
        import multiprocessing
        worker = multiprocessing.active_children()[0].pid
        maps = open("/proc/self/maps").read() + open(f"/proc/{worker}/maps").read()
        print("shared memory:", "/dev/shm" in maps)
        print(worker, flush=True)
        END
"""


def test_a_worker_sees_no_accelerator_and_no_main_module(tmp_path):
    process = run_script(tmp_path, PROGRAM.replace("END", "batches.close()"))
    out, errors = process.communicate(timeout=120)
    assert out.splitlines()[:3] == [
        "jax without a loader: False",
        "worker as expected: True",
        "shared memory: False",  # a killed process group would leave it behind
    ], errors
    assert process.returncode == 0
    assert errors == ""


def test_a_worker_does_not_outlive_a_killed_parent(tmp_path):
    kill = "os.kill(os.getpid(), 9)"
    process = run_script(tmp_path, PROGRAM.replace("END", kill))
    out, errors = process.communicate(timeout=120)
    assert process.returncode == -9, errors
    worker = int(out.splitlines()[-1])
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail(f"worker {worker} is still alive")


def test_an_exception_in_a_worker_reaches_the_consumer(tmp_path):
    fault = 'raise record.DataError("torn")'
    script = PROGRAM.replace("import numpy as np", fault).replace("END", "")
    _, errors = run_script(tmp_path, script).communicate(timeout=120)
    assert "vlc_jax.input_pipeline.record.DataError: 1 of 64 records cannot be used" in errors
    assert "the last is record" in errors

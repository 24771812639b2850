"""config.compilation_cache: a folder of compiled programs that a later start takes them from."""

import os

from tests.support import helpers

PROGRAM = """
import sys
import jax
from vlc_jax.devices import runtime
runtime.connect(None)
runtime.keep_compiled(sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)  # as fast as this one compiles
jax.block_until_ready(jax.jit(lambda x: x + 1)(1.0))
"""


def compile_once(folder, devices=1):
    done = helpers.interpreter("-c", PROGRAM, str(folder), devices=devices)
    assert done.returncode == 0, done.stderr
    return {path.name for path in folder.glob("*-cache")}, done.stderr


def test_a_second_start_compiles_nothing_that_the_first_one_has_compiled(tmp_path):
    folder = tmp_path / "shared" / "compiled"
    compiled, _ = compile_once(folder)
    assert len(compiled) > 0
    (program,) = (folder / name for name in compiled if name.startswith("jit__lambda"))
    os.utime(program, (0, 0))
    again, _ = compile_once(folder)
    assert again == compiled
    assert program.stat().st_mtime == 0  # not written again


def test_several_devices_of_a_cpu_compile_anew_and_say_so(tmp_path):
    compiled, said = compile_once(tmp_path / "compiled", devices=2)
    assert compiled == set()
    assert "config.compilation_cache is not used on several devices of a CPU" in said


def test_a_folder_that_cannot_be_made_ends_the_run_in_one_line(tmp_path):
    (tmp_path / "file").touch()
    flag = f"--config.compilation_cache={tmp_path}/file/compiled"
    done = helpers.run(helpers.TINY, tmp_path / "run", flag)
    assert done.returncode == 2
    assert done.stderr.startswith(f"Usage: config.compilation_cache={tmp_path}/file/compiled: ")
    assert len(done.stderr.splitlines()) == 1

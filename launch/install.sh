#!/usr/bin/env bash
# Creates .venv with the locked packages and JAX for an accelerator.
#
#   launch/install.sh cuda12|cuda13|tpu|cpu
#
# uv installs its own Python: TPU VMs and many clusters have a version older than 3.11.
set -euo pipefail
cd "$(dirname "$0")/.."

accelerator=${1:-}
case $accelerator in
  cuda12 | cuda13 | tpu | cpu) ;;
  *)
    echo "launch/install.sh: the accelerator must be cuda12, cuda13, tpu or cpu, not '$accelerator'" >&2
    exit 2
    ;;
esac

if ! command -v uv >/dev/null; then
  python3 -m pip install --quiet --user uv
  PATH=$(python3 -m site --user-base)/bin:$PATH
fi
uv venv --quiet --allow-existing --python 3.11 .venv  # the version of the tests
uv pip install --quiet --python .venv -r requirements.lock
uv pip install --quiet --python .venv --no-deps --editable .
# keep the locked version of jax, add the libraries of its accelerator
jax=$(.venv/bin/python -c 'from importlib import metadata; print(metadata.version("jax"))')
uv pip install --quiet --python .venv "jax[$accelerator]==$jax"
echo "installed in $PWD/.venv for $accelerator"

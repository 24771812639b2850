#!/usr/bin/env bash
# Creates .venv in the current folder with its packages and JAX for an accelerator.
#
#   bash install.sh cuda12|cuda13|tpu|cpu
#
# In a checkout of vlc_jax, the locked packages; in the folder of a project, its requirements.txt,
# which names vlc_jax as pip takes it: vlc_jax @ git+https://HOST/OWNER/vlc_jax.
# uv installs its own Python: TPU VMs and many clusters have a version older than 3.11.
set -euo pipefail

refuse() {
  echo "install.sh: $1" >&2
  exit 2
}

accelerator=${1:-}
case $accelerator in
  cuda12 | cuda13 | tpu | cpu) ;;
  *) refuse "the accelerator must be cuda12, cuda13, tpu or cpu, not '$accelerator'" ;;
esac
[[ -f requirements.lock || -f requirements.txt ]] || refuse "there is no requirements.txt in $PWD"

if ! command -v uv >/dev/null; then
  python3 -m pip install --quiet --user uv
  PATH=$(python3 -m site --user-base)/bin:$PATH
fi
uv venv --quiet --allow-existing --python 3.11 .venv  # the version of the tests
if [[ -f vlc_jax/main.py ]]; then
  uv pip install --quiet --python .venv -r requirements.lock
  uv pip install --quiet --python .venv --no-deps --editable .
else
  uv pip install --quiet --python .venv -r requirements.txt
fi
# keep this version of jax, add the libraries of its accelerator
jax=$(.venv/bin/python -c 'from importlib import metadata; print(metadata.version("jax"))')
uv pip install --quiet --python .venv "jax[$accelerator]==$jax"
echo "installed in $PWD/.venv for $accelerator"

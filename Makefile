# The newest of the promised Pythons that works here; else the one there is, which is checked.
PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3; do \
  $$python -c 'import ensurepip, venv' 2>/dev/null && echo $$python && break; done)
VENV ?= .venv
RUN := $(VENV)/bin/python
PARITY := .venv-parity
SITE := .venv-site
# A file of tests stays with one worker, since its tests share what they train; the order of
# tests/conftest.py, the longest files first, leaves neither worker waiting for the other.
PYTEST := $(RUN) -m pytest -n 2 --dist loadfile --no-loadscope-reorder
# What is installed is compiled on all cores, of which pip itself would use one, but for folders of
# which few files are ever imported. Files that this Python cannot compile are not imported at all.
COMPILE := -m compileall -qq -j 0 -x '/(tests?|google|lexers|pip|tensorflow_datasets)/'
# Folder of the demo, argument of its first config, steps of the two runs after it, more flags of all
# three; a variable of the environment must not change them.
DEMO := runs/demo
CLIP := quickstart
STEPS := 150
MORE :=
# Two steps of every row of the papers' tables on the scenes: about ten CPU minutes (28 of the 37
# runs took 421 seconds), too long for CI.
PAPERS := acl2025 erroneous_agreements hard_positives aro dcsm
SHORT := --config.steps=2 --config.batch_size=32 --config.optimizer.warmup_steps=1 \
  --config.input.scenes.count=64 --config.input.preview=4 --config.log_every=1 \
  --config.eval.every=2 --config.eval.batch_size=16 \
  "--config.evals={'scenes_relation_swap': {'split': 'test', 'count': 16}}"
# Hundreds of processes of tests import the same files: their bytecode is kept.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-all test-here parity recipes lint site lock help

help:  ## This list.
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*##/\t/'

# buffers of XLA on a CPU: docs/scaling.md
demo: export GLIBC_TUNABLES = glibc.malloc.hugetlb=1
demo: $(VENV)/.built  ## CLIP, then hard negatives, then hard positives too: runs/demo/comparison.html
	$(RUN) -m vlc_jax.main --config configs/scenes/clip.py:$(CLIP) --workdir $(DEMO)/clip $(MORE)
	$(RUN) -m vlc_jax.main --config configs/hn.py:steps=$(STEPS) --workdir $(DEMO)/hn \
	  --config.init_from=$(DEMO)/clip $(MORE)
	$(RUN) -m vlc_jax.main --config configs/hp_hn.py:steps=$(STEPS) --workdir $(DEMO)/hp_hn \
	  --config.init_from=$(DEMO)/clip $(MORE)
	$(RUN) -m vlc_jax.report $(DEMO)/clip $(DEMO)/hn $(DEMO)/hp_hn --out $(DEMO)

test: $(VENV)/.built  ## This installation works: formulas, readers, formats, a run of each kind, resume.
	$(PYTEST) --ignore tests/parity -m "not slow and not devices"
	$(PYTEST) --ignore tests/parity -m "not slow and devices"

test-all: test-here parity  ## Everything: also each method, config and page, every kill, and parity.

test-here: $(VENV)/.beam  ## Everything but parity.
	$(PYTEST) --ignore tests/parity -m "not devices"
	$(PYTEST) --ignore tests/parity -m "devices"

parity: $(VENV)/.built $(PARITY)/.built  ## Our numbers against torch, open_clip and transformers.
	VLC_PARITY_PYTHON=$(PARITY)/bin/python $(RUN) -m pytest tests/parity -m "not devices"

recipes: $(VENV)/.built  ## Every row of the papers' tables on the scenes, two steps each: runs/recipes
	$(RUN) studies/papers.py $(PAPERS) --miniature --out runs/recipes $(SHORT)

lint: $(VENV)/.built  ## Style of every file, types of the library.
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(VENV)/bin/pyrefly check --summary=none

site: $(SITE)/.built $(VENV)/.built  ## The docs as web pages: runs/site/index.html
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --strict --site-dir runs/site

lock:  ## Renew requirements.lock and requirements-docs.txt from pyproject.toml (needs uv).
	uv pip compile --universal --python-version 3.11 --generate-hashes --extra dev \
	  pyproject.toml -o requirements.lock
	uv pip compile --universal --python-version 3.11 --generate-hashes --group docs \
	  -o requirements-docs.txt

$(VENV)/.built: requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python >= 3.11 is needed")'
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-compile -r requirements.lock
	$(RUN) $(COMPILE) $(VENV)/lib || true
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

$(VENV)/.beam: $(VENV)/.built requirements-beam.txt
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-compile --no-deps \
	  -r requirements-beam.txt
	touch $@

$(PARITY)/.built: requirements-parity.txt
	$(PYTHON) -m venv $(PARITY)
	$(PARITY)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile \
	  --no-deps -r $<
	touch $@

$(SITE)/.built: requirements-docs.txt
	$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -r $<
	touch $@

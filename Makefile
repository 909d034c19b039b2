# Two commands do everything on a fresh machine: `make demo` and `make test`. Each sets up .venv where it is not there.
.DEFAULT_GOAL := help
SHELL := /bin/bash
# What Python compiles is kept, whatever the environment says: tests and studies start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

# Another Python needs another environment: make test PYTHON=python3.13 VENV=.venv-3.13
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The FAISS build: gpu where a GPU is seen, else cpu; `make setup FAISS=cpu` chooses.
FAISS ?= $(shell command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi >/dev/null 2>&1 && echo gpu || echo cpu)
INSTALLED := $(VENV)/installed-$(FAISS)
LIGHT := $(VENV)/installed-light-$(FAISS)
EXTRAS := $(FAISS),train,wandb,tensorboard,transformers,timm,open_clip,peft,datasets,milvus,lancedb,qdrant,pgvector,ray,export,hub,serve,sweep,notebooks,dev
# 1: modules are compiled at once, which takes most of the set-up and saves each command more than it; 0: when first used.
COMPILE ?= 1
# Which versions are installed: the pinned ones, or what is given instead.
VERSIONS ?= -c constraints.txt

# Test processes: one more than cores, since many tests wait for a command of theirs; each takes up to 2 GB.
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 7 ? n + 1 : 8)))
# What `make test` runs, e.g. TESTS=tests/losses; empty: all of it.
TESTS ?=
MARKED := not long
LAYERS := tests/losses tests/similarities tests/metrics tests/neighbors tests/criteria

DATA ?=
ROOT ?=
COCO ?=
TABLE ?=
FLICKR30K ?=
SEEDS ?= 0
OUT ?=
ARGS ?=

EMBEDDINGS := queries=runs/embeddings/queries.npy items=runs/embeddings/items.npy truth=runs/embeddings/pairs.csv \
  reference=runs/embeddings/train_queries.npy overwrite=true

help: ## list the commands
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-22s %s\n", $$1, $$2}'

INSTALL = if $(BIN)/uv --version >/dev/null 2>&1; then \
	  echo "installing the packages: one to two minutes with a fast connection"; \
	  UV_COMPILE_BYTECODE=$(COMPILE) $(BIN)/uv pip install --quiet --python $(BIN)/python $(VERSIONS) -e '.[$(1)]'; \
	else $(BIN)/python -m pip install --quiet --disable-pip-version-check $(VERSIONS) -e '.[$(1)]'; fi

setup: $(INSTALLED) ## create .venv and install everything at the pinned versions

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version). Give PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv \
	  || echo "uv could not be installed: pip installs the rest, which takes a few minutes"

$(INSTALLED): pyproject.toml constraints.txt | $(BIN)/python
	@$(call INSTALL,$(EXTRAS))
	@touch $@

# What embeddings need: without Lightning, torchvision and pandas.
$(LIGHT): pyproject.toml constraints.txt | $(BIN)/python
	@$(call INSTALL,$(FAISS))
	@touch $@

demo: $(INSTALLED) ## train four losses on the embedded scenes and draw the comparison (2.5 to 10 minutes on two cores)
	$(BIN)/python -m experiments compare --out runs/demo --losses sum sum_to_max hal hal+mb --criteria csls is \
	  --title "Four losses on the embedded scenes, each at the best of the same five learning rates on validation" \
	  -- experiment=demo

demo-embeddings: $(or $(wildcard $(INSTALLED)),$(LIGHT)) ## measure and correct the hubness of made-up embeddings (seconds)
	$(BIN)/python -m experiments embeddings runs/embeddings
	$(BIN)/vsehub diagnose $(EMBEDDINGS) out=runs/embeddings/diagnose
	$(BIN)/vsehub rerank $(EMBEDDINGS) criterion=auto criterion.indexable=true out=runs/embeddings/rerank
	$(BIN)/vsehub index runs/embeddings/rerank overwrite=true

demo-page: $(INSTALLED) ## train on the embedded scenes (a minute) and show the result in a browser until Ctrl-C; ARGS="port=8001"
	test -f runs/demo-page/checkpoints/best.safetensors || $(BIN)/vsehub train experiment=demo loss=hal bank=memory hydra.run.dir=runs/demo-page
	$(BIN)/vsehub serve checkpoint=runs/demo-page/checkpoints/best.safetensors $(ARGS)

test: $(INSTALLED) ## run all tests but those of test-long, or TESTS="tests/losses tests/criteria"; PYTHON=python3.13 VENV=.venv-3.13 for another Python
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "$(MARKED)" $(ARGS) $(TESTS)

test-layers: TESTS = $(LAYERS)
# Run the tests of losses, similarities, metrics, neighbors and criteria.
test-layers: test

test-long: MARKED = long
test-long: test ## the long tests, which `make test` leaves out: Ray, killed trainings, exports, whole trainings, traced system calls

# The same with the lowest versions that pyproject.toml allows, in .venv-lowest.
test-lowest:
	$(MAKE) test-layers VENV=.venv-lowest VERSIONS='--resolution lowest-direct' COMPILE=0

# Run all tests, or TESTS=..., and write build/coverage/html.
coverage: $(INSTALLED)
	mkdir -p build/coverage
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --cov --cov-report=html $(ARGS) $(TESTS)

MINUTES ?= $(if $(HOURS),$(shell awk 'BEGIN {print 60 * $(HOURS)}'),10)
# Malformed inputs, kills, numbers: ten minutes, or HOURS=8; SEED=0.
torture: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python tools/torture/torture.py --minutes $(MINUTES) --seed $(or $(SEED),0) $(ARGS)

lint: $(INSTALLED) ## check style
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(INSTALLED) ## check types, strictly below training and the command line
	$(BIN)/mypy

$(VENV)/installed-docs: $(INSTALLED)
	@$(call INSTALL,docs)
	@touch $@

docs: $(VENV)/installed-docs ## build the documentation with the Python API and the executed notebooks (NOTEBOOKS=off: not): build/docs/index.html
	OMP_NUM_THREADS=1 NOTEBOOKS=$(or $(NOTEBOOKS),force) $(BIN)/sphinx-build -q -E -W --keep-going -c docs . build/docs
	$(BIN)/python docs/check_links.py build/docs

# LINES given on the command line alone: a shell may export its own.
REPRODUCE = $(BIN)/python -m experiments.reproduce $(TABLE) $(if $(DATA),--data $(DATA)) $(if $(ROOT),--root $(ROOT)) \
  $(if $(COCO),--coco $(COCO)) $(if $(FLICKR30K),--flickr30k $(FLICKR30K)) $(if $(OUT),--out $(OUT)) --seeds $(SEEDS) \
  $(if $(filter command,$(origin LINES)),--lines $(LINES)) $(if $(DRY_RUN),--dry-run) $(ARGS)

reproduce: $(INSTALLED) ## a published table, TABLE=aaai2020/1: on scenes, FLICKR30K=folder, COCO=folder, or DATA=flickr8k ROOT=folder; DRY_RUN=1
	$(REPRODUCE)

reproduce-table2: TABLE = aaai2020/2
reproduce-table2: reproduce ## the same for AAAI 2020's table 2

# The papers' figures: DATA=scenes (5 minutes) | DATA=flickr8k ROOT=folder SEEDS=0,1,2; OUT=folder DRY_RUN=1.
FIGURES_OUT = $(or $(OUT),runs/figures-$(or $(DATA),scenes))
reproduce-figures: $(INSTALLED)
	@test "$(or $(DATA),scenes)" = scenes || test -d "$(ROOT)" || { echo "DATA=$(DATA) needs ROOT, the folder of its features"; exit 1; }
	$(BIN)/python -m experiments claims train $(if $(filter-out scenes,$(DATA)),$(ROOT),scenes) --out $(FIGURES_OUT) \
	  --seeds $(SEEDS) $(if $(DRY_RUN),--dry-run) $(ARGS)
ifndef DRY_RUN
	$(BIN)/python -m experiments claims measure $(FIGURES_OUT)/runs --out $(FIGURES_OUT)/measured
	$(BIN)/python -m experiments claims collect $(FIGURES_OUT)/runs --measured $(FIGURES_OUT)/measured --to $(FIGURES_OUT)
	$(BIN)/python -m experiments claims render $(FIGURES_OUT)
	@echo "the page: $(FIGURES_OUT)/README.md"
endif

grid: SEEDS = 0,1,2
# Losses x criteria x seeds, measured and tested, on one page: DATA=folder (default scenes) SEEDS=0,1,2 OUT=runs/grid.
grid: $(INSTALLED)
	$(BIN)/python -m experiments grid run $(or $(DATA),scenes) --seeds $(SEEDS) --out $(or $(OUT),runs/grid) $(ARGS)

# Time the hot paths against plain baselines (about 20 minutes on two cores).
benchmark: $(INSTALLED)
	$(BIN)/python -m experiments.benchmarks.throughput $(ROOT)
	$(BIN)/python -m experiments.benchmarks.bank $(ROOT)
	$(BIN)/python -m experiments.benchmarks.hal
	$(BIN)/python -m experiments.benchmarks.evaluation

# Search of a million items, databases (about three quarters of an hour on two cores).
benchmark-search: $(INSTALLED)
	$(BIN)/python -m experiments.benchmarks.million
	$(BIN)/python -m experiments.benchmarks.engines

# What only a GPU can show; skips politely without one.
gpu-check: $(INSTALLED)
	$(BIN)/python -m experiments.benchmarks.gpu_check $(ARGS)

# Build the sdist and, from it, the wheel into build/dist: the same bytes from the same commit.
dist: $(INSTALLED)
	rm -rf build/dist
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} $(BIN)/python -m build --no-isolation --outdir build/dist
	cd build/dist && sha256sum *

test-dist: export VSEHUB_TEST_DIST = $(CURDIR)/build/dist
# Build both, install each into an empty environment outside of the checkout, and use it there.
test-dist: dist
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n0 $(ARGS) tests/artefacts/test_artefacts.py tests/artefacts/test_installed.py

# Remove what was built, never runs.
clean:
	rm -rf build docs/api .pytest_cache .ruff_cache .mypy_cache .hypothesis

.PHONY: help setup demo demo-embeddings demo-page test test-layers test-long test-lowest coverage torture lint types docs reproduce reproduce-table2 reproduce-figures grid benchmark benchmark-search gpu-check dist test-dist clean

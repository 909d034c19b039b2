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
# What the demos need, uncompiled; without a GPU also without torch's CUDA libraries, which are 4 GB.
LIGHT := $(VENV)/installed-light-$(FAISS)
DEMO := $(or $(wildcard $(INSTALLED)),$(LIGHT))
comma := ,
EXTRAS := $(FAISS),train,wandb,tensorboard,transformers,timm,open-clip,peft,datasets,milvus,lancedb,qdrant,pgvector,hub,serve,sweep,notebooks,dev
# 1: modules are compiled at once, which takes most of the set-up and saves each command more than it; 0: when first used.
COMPILE ?= 1
# Which versions are installed: the pinned ones, or what is given instead.
VERSIONS ?= -c constraints.txt

# Test processes, one a core; each takes up to 2 GB.
WORKERS ?= $(shell n=$$(env -u OMP_NUM_THREADS nproc 2>/dev/null || echo 2); echo $$((n < 8 ? n : 8)))
# What `make test` runs, e.g. TESTS=tests/losses; empty: all of it.
TESTS ?=
MARKED := not long

DATA ?=
ROOT ?=
COCO ?=
FLICKR30K ?=
SEEDS ?= 0
OUT ?=
ARGS ?=

EMBEDDINGS := queries=runs/embeddings/queries.npy items=runs/embeddings/items.npy truth=runs/embeddings/pairs.csv \
  query_labels=runs/embeddings/queries.txt item_labels=runs/embeddings/items.txt \
  reference=runs/embeddings/reference.npy overwrite=true

help: ## list the commands
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-22s %s\n", $$1, $$2}'

GET_UV = install --quiet --no-compile --disable-pip-version-check -c constraints.txt uv
UV = UV_COMPILE_BYTECODE=$(COMPILE) $(BIN)/uv pip install --quiet --python $(BIN)/python $(VERSIONS)
INSTALL = if $(BIN)/uv --version >/dev/null 2>&1; then \
	  echo "installing the packages: one to two minutes with a fast connection"; $(UV) -e '.[$(1)]'; \
	else $(BIN)/python -m pip install --quiet --disable-pip-version-check $(VERSIONS) -e '.[$(1)]'; fi

setup: $(INSTALLED) ## create .venv and install everything at the pinned versions

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version). Give PYTHON=..."; exit 1; }
	@$(PYTHON) -m venv --without-pip $(VENV)  # preparing the pip that Python brings takes twice as long as getting uv
	@$(PYTHON) -m pip --python $(BIN)/python $(GET_UV) pip || { $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip $(GET_UV); } \
	  || echo "uv could not be installed: pip installs the rest, which takes a few minutes"

$(INSTALLED): pyproject.toml constraints.txt | $(BIN)/python
	@$(call INSTALL,$(EXTRAS))
	@touch $@

$(LIGHT): COMPILE = 0
$(LIGHT): pyproject.toml constraints.txt | $(BIN)/python
	@test $(FAISS) = gpu || ! $(BIN)/uv --version >/dev/null 2>&1 || $(UV) --torch-backend=cpu torch torchvision 2>/dev/null \
	  || echo "the index of torch without CUDA cannot be reached: torch comes with CUDA, 4 GB more"
	@$(call INSTALL,$(FAISS)$(comma)train$(comma)serve)
	@touch $@

demo: $(DEMO) ## train four losses on the built-in scenes and draw the comparison (about 3 minutes on two cores)
	$(BIN)/python -m experiments compare --out runs/demo --losses sum sum_to_max hal hal+mb --criteria csls is \
	  --title "Four losses on the built-in scenes, each at the best of the same five learning rates on validation" \
	  -- experiment=demo

demo-embeddings: $(DEMO) ## measure and correct the hubs among sentences and their translations (seconds)
	$(BIN)/python -m experiments embeddings runs/embeddings
	$(BIN)/vsehub diagnose $(EMBEDDINGS) out=runs/embeddings/diagnose
	$(BIN)/vsehub rerank $(EMBEDDINGS) criterion=auto criterion.indexable=true out=runs/embeddings/rerank
	$(BIN)/vsehub index runs/embeddings/rerank overwrite=true

demo-page: $(DEMO) ## train on the built-in scenes (a minute) and show the result in a browser until Ctrl-C; ARGS="port=8001"
	test -f runs/demo-page/checkpoints/best.safetensors || $(BIN)/vsehub train experiment=demo loss=hal bank=memory hydra.run.dir=runs/demo-page
	$(BIN)/vsehub serve checkpoint=runs/demo-page/checkpoints/best.safetensors $(ARGS)

test: $(INSTALLED) ## run all tests but those of test-long, or TESTS="tests/losses tests/criteria"; PYTHON=python3.13 VENV=.venv-3.13 for another Python
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "$(MARKED)" $(ARGS) $(TESTS)

test-long: MARKED = long
test-long: test ## the long tests, which `make test` leaves out: killed trainings, exports, whole trainings, traced system calls

# What tests with the lowest versions need.
LOWEST := VENV=.venv-lowest VERSIONS='--resolution lowest-direct' EXTRAS=cpu,train,dev COMPILE=0
test-lowest: ## tests with the lowest versions that pyproject.toml allows; TESTS="tests/losses": only those
	@$(MAKE) --no-print-directory test $(LOWEST) TESTS="$(or $(TESTS),tests/losses tests/similarities tests/metrics tests/neighbors tests/criteria)"

mutations: $(INSTALLED) ## one-line breaks, each of which some test must notice (hours); ARGS="--only hal"
	$(BIN)/python tools/mutations.py $(ARGS)

MINUTES ?= $(if $(HOURS),$(shell awk 'BEGIN {print 60 * $(HOURS)}'),10)
torture: $(INSTALLED) ## malformed inputs, killed commands, numbers against oracles: ten minutes, or HOURS=8; SEED=0
	OMP_NUM_THREADS=1 $(BIN)/python tools/torture/torture.py --minutes $(MINUTES) --seed $(or $(SEED),0) $(ARGS)

lint: $(INSTALLED) ## check style
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(INSTALLED) ## check types
	$(BIN)/mypy

$(VENV)/installed-docs: $(INSTALLED)
	@$(call INSTALL,docs)
	@touch $@

docs: $(VENV)/installed-docs ## build the documentation with the Python API and the executed notebooks (NOTEBOOKS=off: not): build/docs/index.html
	OMP_NUM_THREADS=1 NOTEBOOKS=$(or $(NOTEBOOKS),force) $(BIN)/sphinx-build -q -E -W --keep-going -c docs . build/docs
	$(BIN)/python docs/check_links.py build/docs

# LINES given on the command line alone: a shell may export its own.
reproduce-table2: $(INSTALLED) ## AAAI 2020's table 2: on scenes, FLICKR30K=folder, COCO=folder, or DATA=flickr8k ROOT=folder; DRY_RUN=1
	$(BIN)/python -m experiments.reproduce aaai2020/2 $(if $(DATA),--data $(DATA)) $(if $(ROOT),--root $(ROOT)) \
	  $(if $(COCO),--coco $(COCO)) $(if $(FLICKR30K),--flickr30k $(FLICKR30K)) $(if $(OUT),--out $(OUT)) --seeds $(SEEDS) \
	  $(if $(filter command,$(origin LINES)),--lines $(LINES)) $(if $(DRY_RUN),--dry-run) $(ARGS)

gpu-check: $(INSTALLED) ## what only a GPU can show; skips politely without one
	$(BIN)/python -m experiments.benchmarks.gpu_check $(ARGS)

.PHONY: help setup demo demo-embeddings demo-page test test-long test-lowest mutations torture lint types docs reproduce-table2 gpu-check

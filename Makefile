# Everything here works on a machine that has only python3 (3.11 or later), pip and make.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
ARGS ?=

# The protoc in this wheel is 31.1. A newer one makes code that protobuf 6.31.1, the oldest we declare, cannot load.
GRPCIO_TOOLS = grpcio-tools==1.76.0

# Tests start many processes, and each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

.PHONY: help
help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1|\2/p' Makefile | while IFS='|' read -r name text; do \
	  printf '%-14s %s\n' "$$name" "$$text"; done

# --- set-up ---------------------------------------------------------------------------------------------------------

.PHONY: venv
venv: $(VENV)/.installed ## create the virtual environment and install headrace into it

.PHONY: dev
dev: $(VENV)/.installed-dev ## the same with the tools of `make lint` and `make types`

# Where the venv module lacks ensurepip (Debian without python3-venv), the pip that python3 has does the installing.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "headrace needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) > /dev/null 2>&1 || \
	  { rm -rf $(VENV); \
	    $(PYTHON) -m venv --without-pip $(VENV) && \
	    $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; } || \
	  { rm -rf $(VENV); \
	    echo "Cannot create a virtual environment with $(PYTHON): it has neither ensurepip nor a pip new enough" >&2; \
	    echo "(22.3) to install into one. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@ $(VENV)/.installed-examples # the extra has that one

$(VENV)/.installed-examples: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[examples]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(VENV)/.installed $(VENV)/.installed-examples

$(VENV)/.installed-site: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[site]'
	@touch $@

# --- use ------------------------------------------------------------------------------------------------------------

.PHONY: demo
demo: $(VENV)/.installed-examples ## train a network, kill it, go on, and look at what it did; about a minute
	$(BIN)/python examples/demo.py

.PHONY: examples
examples: $(VENV)/.installed-examples ## run the example programs that take seconds
	$(BIN)/python examples/control_flow.py
	$(BIN)/python examples/gradients.py
	$(BIN)/python examples/solvers.py
	$(BIN)/python examples/devices.py
	$(BIN)/python examples/recorded.py

# `make applications PYTHON_BENCH=...` with TensorFlow and PyTorch measures the table of steps a second, too.
.PHONY: applications
applications: $(VENV)/.installed-examples ## run the applications, within an hour, and write docs/applications.md
	$(PYTHON_BENCH) -m examples.applications $(ARGS)

# Material's notice about its successor is no matter of this site.
.PHONY: site
site: $(VENV)/.installed-site ## the documentation as a site, in build/site; open build/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict -f site/mkdocs.yml
	@echo "build/site/index.html"

# What `make bench` runs in: name an environment with TensorFlow, JAX and PyTorch to have them beside headrace. It needs
# what headrace depends on; headrace itself is this checkout.
PYTHON_BENCH ?= $(BIN)/python
BENCH_JSON ?= benchmarks/results/workloads.json

.PHONY: bench
bench: venv ## measure the workloads, into docs/reference/benchmarks.md, then native code and devices; PYTHON_BENCH= has TensorFlow
	$(PYTHON_BENCH) -m benchmarks.workloads --docs docs/reference/benchmarks.md --json $(BENCH_JSON) $(ARGS)
	$(PYTHON_BENCH) -m benchmarks --only native --only native_coverage
	$(PYTHON_BENCH) -m benchmarks --only devices --only routes --only placement --only swap --only cluster

.PHONY: details
details: venv ## measure everything else; ARGS='--only overhead'
	$(PYTHON_BENCH) -m benchmarks $(ARGS)

# --- tests ----------------------------------------------------------------------------------------------------------

# A process for each core, but not for each of many: the tests are so many that four have enough to do.
WORKERS ?= -n auto --maxprocesses 4

# The tiers of docs/internals/testing.md: tests/conftest.py selects by --tier.
.PHONY: test
test: venv ## the unit tier of the tests, two minutes; ARGS='-k loop' is handed to pytest
	$(BIN)/python -m pytest $(WORKERS) --tier unit $(ARGS)

# Folders whose tests compile many steps, and those about the texts of errors.
COMPILED = api compile execute grad jit multi recover schedule session/test_told.py stories train v1 test_diagnosis.py

.PHONY: native
native: venv ## the unit tier of the folders that compile steps, with native code
	HEADRACE_NATIVE=on $(BIN)/python -m pytest $(WORKERS) --tier unit $(COMPILED:%=tests/%) $(ARGS)

.PHONY: check
check: venv ## the unit tier, then the other tests of what the changes since main affect; ARGS='--since REVISION'
	$(BIN)/python -m pytest $(WORKERS) --tier unit
	$(BIN)/python -m tests.affected $(ARGS) --run $(WORKERS) --tier system,matrix

.PHONY: system
system: venv ## the system tier: processes, threads, files
	$(BIN)/python -m pytest $(WORKERS) --tier system $(ARGS)

.PHONY: matrix
matrix: venv ## the matrix tier: op registry, recorded and random programs, steps interpreted
	$(BIN)/python -m pytest $(WORKERS) --tier matrix $(ARGS)

.PHONY: nightly
nightly: venv ## the tests of all tiers, hours
	$(BIN)/python -m pytest $(WORKERS) --tier all $(ARGS)
	$(BIN)/python -m tests.multi.many_programs
	$(BIN)/python -m tests.dist.many_programs
	$(BIN)/python -m tests.targets.native.many_programs

.PHONY: mutate
mutate: venv ## flip the conditions of the passes one by one: the tests must notice; ARGS='fold --jobs 2'
	$(BIN)/python -m tests.optimize.mutate $(ARGS)

.PHONY: corpus
corpus: venv ## replay the recorded TensorFlow programs and print a table by module; ARGS="--core" for the control-flow core
	$(BIN)/python tests/data/corpus/replay.py --engine headrace $(ARGS)

.PHONY: fuzz
fuzz: venv ## feed damaged GraphDefs to the importer for ten minutes
	$(BIN)/python -m tests.fuzz.graphdef --minutes 10 $(ARGS)

.PHONY: reliability
reliability: venv ## run the random tests of all families and write docs/internals/reliability.md; ARGS='--only gradients'
	$(BIN)/python -m tests.reliability --docs docs/internals/reliability.md $(ARGS)

.PHONY: lint
lint: dev ## ruff: rules and format
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .

.PHONY: format
format: dev ## ruff: repair what can be repaired
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

.PHONY: types
types: dev ## mypy on the package, pyright on the programs
	$(BIN)/python -m mypy
	$(BIN)/python -m pytest --tier system tests/test_editors.py

# --- generated code -------------------------------------------------------------------------------------------------

.PHONY: protos
protos: .protoc/.compiler ## make headrace/pb/*_pb2.py anew from the .proto files
	.protoc/bin/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. headrace/pb/*.proto

.protoc/.compiler: Makefile
	$(MAKE) .protoc/bin/python VENV=.protoc
	.protoc/bin/python -m pip install --quiet --disable-pip-version-check '$(GRPCIO_TOOLS)'
	@touch $@

# --- the page of a recording ------------------------------------------------------------------------------------------

# Needs npm, unlike the rest. The file is unchanged; its hash is recorded next to it.
DAGRE = @dagrejs/dagre@3.1.3
VENDOR = headrace/view/assets/vendor

.PHONY: vendor
vendor: ## fetch the layout library of the page by npm again and compare its hash
	rm -rf .vendor && mkdir .vendor
	cd .vendor && npm pack --silent $(DAGRE) && tar -xzf *.tgz
	cd .vendor/package/dist && sha256sum --check --strict ../../../$(VENDOR)/SHA256
	cp .vendor/package/dist/dagre.min.js $(VENDOR)/dagre.min.js
	cp .vendor/package/LICENSE $(VENDOR)/dagre.LICENSE.txt
	rm -rf .vendor

.PHONY: screenshots
screenshots: dev ## take the pictures of docs/how-to/viewing.md again; needs Chromium
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[browser]'
	$(BIN)/python -m tests.view.browser docs/images

.PHONY: clean
clean: ## remove what the other targets made
	rm -rf $(VENV) .protoc build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

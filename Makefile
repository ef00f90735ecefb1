# Every command of the project. `make` lists them. Nothing outside this folder is touched, except the cache of native
# builds (LLAMACY_BUILD_CACHE), the cache of models, and pip's own.

PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
SANITIZE ?= address,undefined
ASAN_TESTS ?= tests/core
PYTEST_ARGS ?=
# tests run side by side, one process for each CPU
TEST_JOBS ?= auto
BENCH_ARGS ?=
PROMPT ?= The three most important things to know about the sea are

# What the extension modules are built from.
SOURCES := $(shell find src -path src/llamacy/include -prune -o \( -name '*.pyx' -o -name '*.pxd' -o -name '*.h' \) -print) \
           $(wildcard buildtools/*.py buildtools/cmake/*) setup.py vendor/PIN.toml

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test lint types cimport bench asan sdist wheel clean build

help: ## list the commands
	@echo "usage: make <command> [PYTHON=python3.12]"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1|\2/p' Makefile | awk -F'|' '{ printf "%-12s %s\n", $$1, $$2 }'

demo: $(VENV)/.installed ## set up .venv, install, fetch a small model, write text with it
	$(VENV)/bin/llamacy pull smollm2-135m
	$(VENV)/bin/llamacy generate --model smollm2-135m --max-tokens 96 "$(PROMPT)"

test: $(VENV)/.dev $(VENV)/.installed ## set up .venv, install, run all tests
	$(PY) -m pytest -q -n $(TEST_JOBS) --dist worksteal $(PYTEST_ARGS)

lint: $(VENV)/.dev ## ruff and cython-lint
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/cython-lint src

types: $(VENV)/.dev $(VENV)/.installed ## mypy --strict, and the stubs against the compiled modules
	$(PY) -m mypy
	$(PY) -m buildtools.stub_check

cimport: $(VENV)/.dev $(VENV)/.installed ## build a wheel, install it elsewhere, compile and run code that cimports it
	rm -rf build/cimport-dist
	$(PY) -m pip wheel -q --no-deps --no-build-isolation -w build/cimport-dist .
	LLAMACY_WHEEL_DIR=$(CURDIR)/build/cimport-dist $(PY) -m pytest -q tests/cimport

bench: $(VENV)/.dev $(VENV)/.installed ## run the benchmarks against native loops
	@status=0; for name in import memory; do $(PY) benchmarks/bench_$$name.py || status=1; done; \
	$(PY) benchmarks/bench_decode.py $(BENCH_ARGS) || status=1; exit $$status

# Reports go into files: output of pytest would hide them. An allocation that is refused is no fault; tests ask for that.
# Soak tests are left out: they measure memory, which a sanitizer keeps after it was freed.
asan: .venv-asan/.installed ## the core tests under AddressSanitizer and UndefinedBehaviorSanitizer
	rm -rf build/asan-reports && mkdir -p build/asan-reports
	$${CXX:-c++} -std=c++17 -O1 -g -shared -fPIC buildtools/sanitize/*.cpp -o build/sanitize.so -ldl
	LD_PRELOAD="$(CURDIR)/build/sanitize.so $$($${CXX:-c++} -print-file-name=libasan.so) $$($${CXX:-c++} -print-file-name=libubsan.so) \
	$$($${CXX:-c++} -print-file-name=libstdc++.so)" \
	LLAMACY_SANITIZER_REPORT=$(CURDIR)/build/asan-reports/report \
	ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0:allocator_may_return_null=1 \
	UBSAN_OPTIONS=print_stacktrace=1:suppressions=$(CURDIR)/buildtools/sanitize/ubsan.supp \
	PYTHONMALLOC=malloc .venv-asan/bin/python -m pytest -q -n $(TEST_JOBS) --dist worksteal -p no:cacheprovider -m 'not soak' --timeout 1800 \
	$(ASAN_TESTS) $(PYTEST_ARGS); \
	status=$$?; if grep -rlE 'ERROR: AddressSanitizer|runtime error' build/asan-reports; then \
	echo "sanitizer reports in the files above" >&2; exit 1; fi; exit $$status

sdist: $(VENV)/.dev ## a source distribution that builds with the network off
	$(PY) -m build --sdist --no-isolation --outdir dist

wheel: $(VENV)/.dev ## a wheel for any CPU of this kind (on Linux with a manylinux tag)
	$(PY) -m buildtools.wheel_repair --no-isolation --out dist

clean: ## remove everything built here; the vendored tree and the caches stay
	rm -rf build dist .venv .venv-asan src/*.egg-info src/llamacy/_lib src/llamacy/include
	find src -name '*.so' -exec rm -f {} +
	find . -path ./vendor -prune -o -name __pycache__ -prune -exec rm -rf {} +

build: $(VENV)/.installed

# ---- environments: a stamp for each step, so that a second run costs nothing

define make_venv
	@command -v $(PYTHON) >/dev/null || { echo "llamacy: $(PYTHON) isn't found: install Python 3.10 or newer, or name yours: make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "llamacy: $$($(PYTHON) --version 2>&1) is too old: Python 3.10 or newer is needed; name one: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(1)
	$(1)/bin/python -m buildtools.requirements > $(1)/build-requirements.txt
	$(1)/bin/python -m pip install -q -r $(1)/build-requirements.txt
endef

$(VENV)/.tools: pyproject.toml
	$(call make_venv,$(VENV))
	@touch $@

# The native build runs by itself first: inside pip nobody would see how far it is.
$(VENV)/.installed: $(VENV)/.tools $(SOURCES)
	$(PY) -m buildtools.native
	@echo "llamacy: compiling its own modules next; pip says nothing meanwhile, which may be for some minutes"
	$(PY) -m pip install -q --no-build-isolation -e '.[hub]'
	@touch $@

$(VENV)/.dev: $(VENV)/.tools | $(VENV)/.installed
	$(PY) -m pip install -q --no-build-isolation -e '.[hub,dev]'
	@touch $@

.venv-asan/.tools: pyproject.toml Makefile
	$(call make_venv,.venv-asan)
	.venv-asan/bin/python -m pip install -q numpy platformdirs tqdm jinja2 pytest pytest-timeout pytest-xdist hypothesis gguf
	@touch $@

.venv-asan/.installed: .venv-asan/.tools $(SOURCES) $(shell find src -name '*.py')
	LLAMACY_SANITIZE=$(SANITIZE) .venv-asan/bin/python -m buildtools.native
	LLAMACY_SANITIZE=$(SANITIZE) .venv-asan/bin/python -m pip install -q --no-build-isolation --no-deps --force-reinstall .
	@touch $@

# Everything runs in a virtual environment, which `make build` creates.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: build test lint bench docs debug asan ubsan tsan fuzz exhaustive clean

build: $(READY)
	$(BIN)/python setup.py -q build_ext --inplace

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -e '.[dev]'
	touch $@

test: build
	$(BIN)/python -m pytest -q -n auto --dist loadfile

lint: build
	$(BIN)/ruff check .
	$(BIN)/mypy
	for generator in scripts/gen_*.py; do $(BIN)/python $$generator --check || exit 1; done

bench: build
	$(BIN)/python -m pytest -q bench
	for script in bench/bench_*.py bench/compare_*.py; do $(BIN)/python $$script || exit 1; done

docs: build
	for generator in scripts/gen_*.py; do $(BIN)/python $$generator || exit 1; done

# Line trace, bounds checks, no optimization; annotated HTML under build/cython.
debug: $(READY)
	RELAXVM_DEBUG_BUILD=1 $(BIN)/python setup.py -q build_ext --inplace --force

# Sanitizers of gcc: the kernels in a program of C, some minutes; then builds of their own under build, and the
# tests of native code and of threads, some hours.  `make asan-kernels` is the first part alone.
%-kernels: build
	$(BIN)/python -m tests.kernel_driver $(SANITIZER_OF_$*)
SANITIZER_OF_asan := address
SANITIZER_OF_ubsan := undefined
SANITIZER_OF_tsan := thread

asan: asan-kernels
	$(BIN)/python scripts/sanitize.py address

ubsan: ubsan-kernels
	$(BIN)/python scripts/sanitize.py undefined

tsan: tsan-kernels
	$(BIN)/python scripts/sanitize.py thread

# A million mutants of each kind of file: hours. FUZZ="--count 10000 --kind json" is a shorter one.
FUZZ ?= --kind all --count 1000000 --seed 0
# Functions of elements over all numbers of float32, some minutes for each.
exhaustive: build
	$(BIN)/python -m tests.exhaustive

fuzz: build
	$(BIN)/python -m tests.fuzz $(FUZZ)

clean:
	rm -rf build dist $(VENV) *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .benchmarks
	find relaxvm -name "*.so" -delete -o -name "*.pyd" -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One word each.  Everything happens in a virtual environment that `make build` creates.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: build test lint bench docs debug clean

build: $(READY)
	$(BIN)/python setup.py -q build_ext --inplace

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -e '.[dev]'
	touch $@

test: build
	$(BIN)/python -m pytest -q

lint: build
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python scripts/gen_isa.py --check

bench: build
	$(BIN)/python -m pytest -q bench
	$(BIN)/python bench/compare_tvm.py

docs: build
	$(BIN)/python scripts/gen_isa.py

# Line trace, bounds checks, no optimization; annotated HTML under build/cython.
debug: $(READY)
	RELAXVM_DEBUG_BUILD=1 $(BIN)/python setup.py -q build_ext --inplace --force

clean:
	rm -rf build dist $(VENV) *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .benchmarks
	rm -f relaxvm/*.so relaxvm/*.pyd
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

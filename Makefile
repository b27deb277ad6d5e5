# The usual tasks. `make serve` and `make test` work on a fresh clone.
# Other interpreter: make PYTHON=python3.12 serve. Server flags: make serve ARGS="--port 9000".
PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check
# What an installed package depends on; edits of Python sources count at once.
BUILD := pyproject.toml CMakeLists.txt strata/__init__.py \
         $(shell find strata/kernels/cpu -type f 2>/dev/null)

.PHONY: help serve test lint unit agents bench soak fuzz sanitize clean
.DELETE_ON_ERROR:

help:
	@echo "make serve   set up, fetch the default model, serve on 127.0.0.1:8080"
	@echo "make test    set up, check style and types, run every test"
	@echo "make lint    style and types only     make unit    tests only"
	@echo "make bench   compare with llama.cpp   make soak    2,000 random requests, long property tests, all injected bugs"
	@echo "make agents  Claude Code, codex and opencode against a scripted model"
	@echo "make fuzz    random files for the readers, FUZZ_SECONDS=60 each"
	@echo "make sanitize  the native code and its tests under the compiler's sanitizers"
	@echo "make clean   remove the virtual environment and all build output"

serve: $(VENV)/.installed
	@$(VENV)/bin/strata serve $(ARGS)

test: lint unit

lint: $(VENV)/.tested
	@echo "==> Style (ruff)"
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@echo "==> Types (mypy --strict)"
	@$(VENV)/bin/mypy

unit: $(VENV)/.tested
	@echo "==> Tests (pytest)"
	@$(VENV)/bin/python -m pytest $(ARGS)

bench: $(VENV)/.installed
	@$(VENV)/bin/python bench/compare_llama.py $(ARGS)

# Fetches 1 GB of npm packages the first time.
agents: $(VENV)/.tested
	@$(VENV)/bin/python bench/agents.py $(ARGS)

soak: $(VENV)/.tested
	@$(VENV)/bin/python bench/soak.py $(ARGS)
	@$(VENV)/bin/python -m pytest tests/props --props-scale=10 --timeout=3000
	@$(VENV)/bin/python tests/mutate.py

# The readers of files, and of blocks where there is a clang with libFuzzer.
FUZZ_SECONDS ?= 60
fuzz: $(VENV)/.tested
	@$(PIP) install --quiet 'atheris>=3,<4'
	@$(VENV)/bin/python tests/fuzz/gguf_files.py build/corpus -max_total_time=$(FUZZ_SECONDS)
	@command -v clang++ >/dev/null || echo "==> The readers of blocks are left out: no clang++"
	@! command -v clang++ >/dev/null || { clang++ -std=c++20 -O1 -g -fno-sanitize-recover=all \
	  -fsanitize=fuzzer,address,undefined -Istrata/kernels/cpu tests/fuzz/rows.cpp \
	  strata/kernels/cpu/codes.cpp strata/kernels/cpu/dequantise.cpp -o build/fuzz_rows \
	  && build/fuzz_rows -max_len=600 -max_total_time=$(FUZZ_SECONDS); }

SANITIZED := build/sanitize
sanitize: $(VENV)/.tested
	@cmake -S . -B $(SANITIZED) -G Ninja -DSTRATA_SANITIZE=address,undefined -DCMAKE_CXX_COMPILER=g++ \
	  -DPython_EXECUTABLE=$(abspath $(VENV))/bin/python
	@cmake --build $(SANITIZED) --target _cpu selfcheck
	@$(SANITIZED)/selfcheck
	@LD_PRELOAD=$$(g++ -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 \
	  $(VENV)/bin/python tests/sanitized.py $(SANITIZED) tests/kernels tests/files --timeout=3000 $(ARGS)

$(VENV)/bin/python:
	@echo "==> Making a virtual environment in $(VENV)"
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and \
	  f"Strata needs Python 3.11 or newer, and this is {v[0]}.{v[1]}: make PYTHON=python3.12 ...")'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(BUILD) | $(VENV)/bin/python
	@echo "==> Installing Strata: libraries first (PyTorch is the large one), then the native"
	@echo "    kernels are compiled, which takes a few minutes on a small machine"
	@$(PIP) install --editable .
	@touch $@

$(VENV)/.tested: $(BUILD) | $(VENV)/bin/python
	@echo "==> Installing Strata and what its tests need: libraries first (PyTorch is the large"
	@echo "    one), then the native kernels are compiled, a few minutes on a small machine"
	@$(PIP) install --editable '.[test]'
	@touch $(VENV)/.installed $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find strata -name '*.so' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

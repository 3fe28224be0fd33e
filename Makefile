# Everything a newcomer or CI does, in one virtual environment that the targets make themselves.
#   make demo    install what training needs and run the demo
#   make test    install the rest and run the whole test suite
#   make check   format, lint, types, import floors
#   make torture-ranks  twenty killed ranks under torchrun; as root, two hosts with a cut cable
#   make format  rewrite the code as `make check` wants it

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt

.PHONY: demo test check format setup torture-ranks

demo: $(VENV)/.train
	$(BIN)/gptwright demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

setup: $(VENV)/.dev

torture-ranks: $(VENV)/.dev
	$(BIN)/python benchmarks/ranks.py kills
	$(BIN)/python benchmarks/ranks.py kills --parallel fsdp
	test "$$(id -u)" -ne 0 || $(BIN)/python benchmarks/ranks.py network

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "gptwright needs Python 3.11 or newer; give one as: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.train: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[train]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.train

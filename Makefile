# Everything a newcomer or CI does, in one virtual environment that the targets make themselves.
#   make demo    install what training needs and run the demo
#   make test    install the rest and run the whole test suite
#   make test-long  the suite with the full form of what `make test` runs a part of (some more minutes)
#   make check   format, lint, types, import floors
#   make torture-ranks  twenty killed ranks under torchrun; as root, two hosts with a cut cable
#   make format  rewrite the code as `make check` wants it
#   make torture 300 kills and everything else that can happen to a run (some minutes)
#   make pictures  train the demo thrice and take the pictures of README and docs

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Whole files to whichever process is free, in the order of tests/conftest.py: those with slow tests first.
TESTS := $(BIN)/python -m pytest -n auto --dist=loadfile --no-loadscope-reorder
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install --constraint constraints.txt

.PHONY: demo test test-long check format setup chromium pictures torture torture-ranks

demo: $(VENV)/.train
	$(BIN)/gptwright demo

test: $(VENV)/.dev chromium
	$(TESTS)

test-long: $(VENV)/.dev chromium
	GPTWRIGHT_LONG=1 $(TESTS)

# The reports are tested in a real browser: Debian's, where this is Debian and root may install it.
chromium:
	@command -v chromium || command -v chromium-browser || command -v google-chrome || \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
				apt-get install -y -qq --no-install-recommends chromium >/dev/null; \
		else echo "no Chromium here: the tests in a browser will be skipped"; fi

pictures: $(VENV)/.dev chromium
	$(BIN)/gptwright demo --plain --out build/pictures
	$(BIN)/gptwright train demo --plain --dataset=$$(echo build/pictures/*_char) \
		--out_dir=build/pictures/a-third-of-the-rate --learning_rate=3e-4 --min_lr=3e-5
	GPTWRIGHT_PICTURES=docs/pictures GPTWRIGHT_PICTURED=build/pictures/run-1:build/pictures/a-third-of-the-rate \
		$(BIN)/python -m pytest -q tests/report/test_pictures_of_pages.py \
		tests/report/live/test_picture_of_watch.py

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

setup: $(VENV)/.dev

torture: $(VENV)/.dev
	$(BIN)/python -m benchmarks.torture

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

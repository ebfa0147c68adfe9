# Every target sets up its own .venv from the pinned constraints when there is none.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test quick lint docs bench bench-quick trust clean
.DEFAULT_GOAL := test

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("mvgp needs Python 3.11 or later, got " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

# torch goes first and pinned: a plain "torch" would pull in several gigabytes of GPU libraries
$(VENV)/.core: $(BIN)/python pyproject.toml constraints.txt
	$(INSTALL) torch
	$(INSTALL) --editable '.[cli]'
	@touch $@

$(VENV)/.test: $(VENV)/.core
	$(INSTALL) --editable '.[cli,test]'
	@touch $@

$(VENV)/.docs: $(VENV)/.core
	$(INSTALL) --editable '.[cli,docs]'
	@touch $@

$(VENV)/.bench: $(VENV)/.core
	$(INSTALL) --editable '.[cli,bench]'
	@touch $@

demo: $(VENV)/.core  ## rank genes of OMIM diseases, compare models, write a report
	$(BIN)/mvgp demo

lint: $(VENV)/.test  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# two processes with one thread each use two cores better than one process with two
test: lint  ## style, types, and the whole test suite
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

quick: lint  ## style, types, and the tests that take no more than about a second each
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not slow"

docs: $(VENV)/.docs  ## the documentation site; warnings and broken links are errors
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html
	$(BIN)/python docs/check_links.py docs/_build/html

bench: $(VENV)/.bench  ## the benchmark book: mvgp beside its peers in one run, writes docs/benchmark_book.md
	$(BIN)/python -m benchmarks.book

bench-quick: $(VENV)/.bench  ## every chapter of the book at tiny sizes, in minutes: whether it runs, not how fast it is
	$(BIN)/python -m benchmarks.book --quick --out benchmarks/results/quick

trust: $(VENV)/.test  ## figures of trust: what was tried and what failed, writes docs/trust.md; two hours, resumable
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.trust --jobs 2 --budget 115 --publish

clean:
	rm -rf $(VENV) build dist docs/_build .pytest_cache .mypy_cache .ruff_cache

# `make demo` and `make test` need only Python 3.11+ and Java 17+; everything else goes into .venv.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

# A test that holds the interpreter itself, so that no timeout of Python's can end it, ends its process and is named.
NEVER_HANG := -o faulthandler_timeout=900 -o faulthandler_exit_on_timeout=true

.DEFAULT_GOAL := help
.PHONY: help demo test test-long lint types check bench clean java

help:            ## this list
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 12

$(READY): pyproject.toml scripts/make-venv
	@scripts/make-venv "$(PYTHON)" "$(VENV)"
	@touch $@

java:
	@scripts/ensure-java

demo: java $(READY)  ## run the main job
	@$(BIN)/penstock demo

test: java $(READY)  ## run the tests (under 12 minutes on 2 cores)
	@$(BIN)/python -m pytest -q -m "not long" -n 2 --dist worksteal $(NEVER_HANG)

test-long: java $(READY)  ## run the storms
	@$(BIN)/python -m pytest -q -m long

lint: $(READY)  ## ruff
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(READY)  ## mypy, strict
	@$(BIN)/mypy

check: lint types test  ## lint, types and tests: what CI runs

clean:           ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

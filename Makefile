# `make demo` and `make test` do everything on a fresh machine. ARGS goes to the command behind a target.
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all check lint types imports format soak dist dist-check docs changelog lock clean
PATHS := src tests bench jobs tools
BIN := .venv/bin
DIST := dist
SITE := build/site

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: .venv/.ready  ## an environment in .venv with the holdfast command and every extra

.venv/.ready: requirements.lock pyproject.toml tools/setup.sh
	@tools/setup.sh

demo: setup  ## the main job on a real broker, from set-up to report.html
	@$(BIN)/holdfast demo $(ARGS)

test: setup  ## set-up and every promise once: one broker, one Spark session
	@tools/programs.sh
	@$(BIN)/python tools/run_tests.py $(ARGS)

test-all: setup  ## the rest of the tests: every client, kind, fault, version and size
	@tools/programs.sh
	@$(BIN)/python tools/run_tests.py --all $(ARGS)

check: lint types imports docs test test-all  ## everything that CI runs

lint: setup  ## format and lint
	@$(BIN)/ruff format --check $(PATHS)
	@$(BIN)/ruff check $(PATHS)

types: setup  ## mypy, strict
	@$(BIN)/mypy

imports: setup  ## the layers
	@$(BIN)/lint-imports --no-logo

format: setup  ## format in place
	@$(BIN)/ruff format $(PATHS)
	@$(BIN)/ruff check --fix $(PATHS)

soak: setup  ## the long runs: 20,000 seeds, exhaustive search, fuzzing, chaos
	@tools/kdc.sh
	@$(BIN)/python tools/soak.py $(ARGS)

dist: setup  ## a wheel and an sdist in dist/
	@$(BIN)/hatchling build -t wheel -t sdist -d $(DIST)

dist-check: dist  ## each of them is checked, and installed in a fresh environment
	@$(BIN)/uv tool run twine check --strict $(DIST)/*
	@for file in $(DIST)/*; do \
	  $(BIN)/uv run -q --isolated --no-project --with "$$file" holdfast --version || exit 1; done

docs: setup  ## the documentation as a site in build/site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -d $(SITE)

changelog: setup  ## put the fragments of changes/ into CHANGELOG.md: VERSION=0.1.0
	@$(BIN)/towncrier build --yes --version $(VERSION)

lock:  ## write requirements.lock anew from pyproject.toml
	@$(BIN)/uv pip compile pyproject.toml --extra all --group test --group lint --group build --group docs --group fuzz \
	  --generate-hashes --no-strip-extras --no-emit-index-url --universal --python-version 3.11 --no-header -q -o requirements.lock

clean:  ## remove the environment and every cache in the tree
	rm -rf .venv .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find $(PATHS) -name __pycache__ -prune -exec rm -rf {} +

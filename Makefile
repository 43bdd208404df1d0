# Every target makes .venv and installs what it needs by itself (scripts/bootstrap.sh).
#
#   PYTHON=/usr/bin/python3.12 make test    another interpreter (before .venv exists, or after make clean)
#   ARGS="-k replay -x" make test-only      arguments for pytest, ports and such for the demo

PY := .venv/bin/python
WORKERS ?= 2
ARGS ?=

# The two packages whose own tests must reach every branch of them.
GATED := src/tidegate/sse/*,src/tidegate/channel/*
GATED_TESTS := tests/sse tests/channel

.DEFAULT_GOAL := help
.NOTPARALLEL:

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: venv ## start a server with live sessions and print the URL of a page that shows them
	@$(PY) -m examples.demo $(ARGS)

.PHONY: test
test: venv-browser cover rest ## run all tests, with the coverage gate for sse and channel

.PHONY: check
check: venv ## formatting, lint, types, import rules, layout
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	.venv/bin/lint-imports --no-cache
	$(PY) scripts/check_layout.py

.PHONY: bench
bench: venv ## measure, print tables, write bench/results/latest.json
	$(PY) -m bench.run $(ARGS)

.PHONY: bench-quick
bench-quick: venv ## the same with small numbers: does it run, not how fast
	$(PY) -m bench.run --quick $(ARGS)

.PHONY: storm
storm: venv ## 5,000 clients of one channel come back together: what they get, and what it costs
	$(PY) scripts/check_storm.py $(ARGS)

.PHONY: catch-up
catch-up: venv ## a client on a slow link catches up with 100,000 events: what it gets and costs
	$(PY) scripts/check_catch_up.py $(ARGS)

.PHONY: fmt
fmt: venv ## format, and fix what ruff can fix
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

# Without the slow ones, which measuring would make slower still and which reach nothing more.
.PHONY: cover
cover: venv ## the quick tests of sse and channel; fails under 100 % of their branches
	@$(PY) -m coverage erase
	$(PY) -m coverage run -m pytest -n $(WORKERS) -m "not slow" $(GATED_TESTS)
	@$(PY) -m coverage combine --quiet
	$(PY) -m coverage report --include='$(GATED)' --fail-under=100

# By file: what a file starts once (a server, a browser) is started once.
.PHONY: rest
rest: venv-browser
	$(PY) -m pytest -n $(WORKERS) -m slow $(GATED_TESTS)
	$(PY) -m pytest -n $(WORKERS) --dist loadfile $(addprefix --ignore=,$(GATED_TESTS)) tests

.PHONY: test-only
test-only: venv-browser ## pytest with ARGS, no coverage
	$(PY) -m pytest $(ARGS)

.PHONY: mutants
mutants: venv ## mutation testing of channel (slow); ends with the mutants that survived
	PATH="$(CURDIR)/.venv/bin:$$PATH" MYPYPATH=src $(PY) -m mutmut run $(ARGS)
	$(PY) -m mutmut results

.PHONY: lock
lock: venv ## pin the newest tools that pyproject.toml allows
	scripts/lock.sh

.PHONY: clean
clean: ## remove .venv and everything else that was made here
	rm -rf .venv tests/interop/node_modules .bootstrap.lock .coverage .coverage.* htmlcov mutants dist build
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache bench/results
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: venv venv-browser
venv:
	@scripts/bootstrap.sh

venv-browser:
	@scripts/bootstrap.sh browser curl npm

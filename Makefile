# `make` alone lists the targets. Every target sets up what it needs.

VENV := .venv
BIN := $(VENV)/bin
SETUP := $(VENV)/.set-up

# All studies in their quick size: tables, figures and the report in results/.
RUN_COMMAND ?= $(BIN)/cubecast study run --quick --all --out results
PYTEST_ARGS ?=

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@echo "cubecast: choose a target"
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-13s %s\n", $$1, $$2 }'

.PHONY: setup
setup: $(SETUP) ## Make .venv with the cubecast command in it

$(SETUP): requirements.lock pyproject.toml scripts/make-venv.sh
	@sh scripts/make-venv.sh
	@touch $@

.PHONY: run
run: java warm ## Run every study in its quick size; the report is results/report/index.html
	$(RUN_COMMAND)

.PHONY: test
test: java warm ## Run all tests, those with Spark, a browser and real processes too
	@sh scripts/install-chromium.sh
	@sh scripts/install-s3.sh
	$(BIN)/python -m pytest -n auto $(PYTEST_ARGS)

.PHONY: check
check: check-static warm ## Format, lint, types, import rules and the fast tests
	$(BIN)/python -m pytest -n auto -m "not slow and not spark and not live and not browser and not peers" $(PYTEST_ARGS)

.PHONY: check-static
check-static: $(SETUP) ## Format, lint, types and import rules only
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/project/test_import_rules.py

.PHONY: warm
warm: $(SETUP) ## Compile the kernels once, so that later runs start at once
	$(BIN)/cubecast warm

.PHONY: java
java:
	@sh scripts/install-java.sh

.PHONY: study
study: java warm ## Run every study in full; the report is results/report/index.html
	$(BIN)/cubecast study run --full --all --out results

.PHONY: compare
compare: $(SETUP) ## Compare the stability protocols on small groups; tables and plots in results/compare
	$(BIN)/cubecast compare --members 25,50,100,200 --network random:degree=5 --repeat 3 --out results/compare

.PHONY: docs
docs: $(SETUP) ## Build the documentation site into results/site and check its links
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements-docs.lock
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "results/site/index.html; with search: $(BIN)/python -m http.server -d results/site 8000"

.PHONY: bench
bench: warm ## Measure the simulator on this machine
	$(BIN)/cubecast bench
	$(BIN)/python bench/storm.py

.PHONY: bench-peers
bench-peers: warm ## Measure it side by side with ns-2 and SimPy
	@sh scripts/install-ns2.sh
	$(BIN)/python bench/storm.py --peers

.PHONY: bench-live
bench-live: warm ## Measure live groups on this machine's loopback, side by side with JGroups and NATS
	@sh scripts/install-live-peers.sh
	$(BIN)/python -m bench.live.run --peers --tls --journal --repeat 3
	$(BIN)/python -m bench.live.run --peers --tls --payload 1000
	$(BIN)/python -m bench.live.run --members 8 --latency
	$(BIN)/python -m bench.live.changes --members 16

.PHONY: bench-bus
bench-bus: warm ## Measure the bus between web workers beside channels_redis and the Redis manager
	@sh scripts/install-redis.sh
	$(BIN)/python -m bench.bus --repeat 3

.PHONY: bench-documents
bench-documents: warm ## Measure the memory of pycrdt documents with their history squashed and kept
	$(BIN)/python -m bench.documents --plot results/documents.svg

.PHONY: lock
lock: $(SETUP) ## Resolve the dependencies again and rewrite requirements.lock
	@sh scripts/lock.sh

.PHONY: clean
clean: ## Remove .venv, caches and results
	rm -rf $(VENV) results build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
	find src -name '*.egg-info' -type d -prune -exec rm -rf {} + 2>/dev/null || true

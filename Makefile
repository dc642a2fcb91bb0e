# Two commands are enough: `make demo` and `make test`. Both install what is missing (scripts/setup.sh).
SHELL := /bin/bash
.DEFAULT_GOAL := help
# Python keeps what it compiles, also where the machine's settings forbid it: each of the tests' processes would compile all again.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help setup demo first rest test test-all test-clusters test-kubernetes test-node test-long test-unstable steady mended machine kube-api kube-node s3-server kafka-broker crds lint docs reference papers bench arena bench-operator bench-chaos bench-node clean

BIN := .venv/bin
READY := .venv/ready
# One bench: `make bench BENCHES=kernels`. One room's tests: `make test TESTS=tests/routing`.
BENCHES ?= kernels planners dataplane latency heterogeneous reconfigure
TESTS ?= tests
PYTEST := $(BIN)/python -m pytest
# The tests of a level, its record and the table of all of them: tests/support/tiers.py.
TIERS := PYTHONPATH=tests $(BIN)/python -m support.tiers
STEADY := PYTHONPATH=tests $(BIN)/python -m support.steady
# Kubernetes for the tests (docs/internals/testing.md): built once, kept in ~/.cache/streamtopology/kube.
KUBE := PYTHONPATH=tests $(BIN)/python -m support.kube.binaries

help: ## Show what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Install what the commands need: Python packages into .venv, Java where that is allowed (a minute)

demo: $(READY) ## A skewed stream on unequal executors: fixed routing and re-routed live, in turns (about 5 minutes)
	$(BIN)/streamtopology demo --report build/demo

ifeq ($(TESTS),tests)
test: $(READY) machine kafka-broker ## The tests that hold a change back: Python and Java are enough (CONTRIBUTING.md)
	$(TIERS) gate
else
test: $(READY)
	$(PYTEST) $(TESTS)
endif

# What fails most, for a reason that half a minute shows: it comes before the rest in .ci/run.
FIRST := tests/test_shape.py tests/test_imports.py tests/jobs/test_errors.py tests/lab/test_mutant_texts.py tests/test_docs.py tests/routing/test_crd.py
# While lint has the other core, they compile the planners' kernels, which both processes of the gate would compile at once.
FIRST += tests/routing/test_mixed_planner.py tests/routing/test_auto_planner.py
first: $(READY) # shape, imports, the tree of errors, texts that quote code, derived files
	$(PYTEST) --exitfirst $(FIRST)
# All tests are imported, while lint goes on: one that cannot be is red now, and two processes need not compile each at once.
	@$(PYTEST) --level gate --collect-only -qq | sed '/: [0-9]*$$/d'; exit $${PIPESTATUS[0]}

rest: $(READY) machine kafka-broker # `make test` after `make first`
	$(TIERS) gate $(FIRST)

test-clusters: $(READY) kafka-broker s3-server ## Real Spark clusters, Kafka, S3, a browser, killed processes
	scripts/browser-packages.sh
	scripts/prometheus-packages.sh
	scripts/postgres-packages.sh
	$(TIERS) clusters

test-kubernetes: kube-node s3-server ## A real API server, helm
	$(TIERS) kubernetes

test-node: kube-node ## A real Kubernetes node, with containers (needs root, Debian or Ubuntu)
	scripts/node-packages.sh
	$(TIERS) node

test-long: $(READY) ## Many cases, new seeds, the papers in full
	$(TIERS) long

test-unstable: kube-node kafka-broker s3-server # tests marked unstable: reported, and hold nothing back
	$(TIERS) unstable

test-all: $(READY) ## All of them, one after the other, but those that passed at this very tree; ends with a table
	$(TIERS) all

steady: $(READY) ## A new or changed test, ten times next to two busy processes: make steady TESTS=tests/x.py::test_y
	$(STEADY) --rounds 10 --runs 1 $(TESTS)

mended: $(READY) ## A test that was unstable: five rounds of at least 100 runs next to two busy processes
	$(STEADY) --rounds 5 --runs 100 --seconds 300 $(TESTS)

machine: $(READY) # one sentence for each thing that this machine lacks
	@$(BIN)/python scripts/check_machine.py

kube-api: $(READY) # etcd, kube-apiserver, kube-controller-manager, kubectl
	@$(KUBE) api

kube-node: $(READY) # those, and what a node needs, and helm
	@$(KUBE) node

s3-server: $(READY) # the S3 server of the tests (docs/internals/testing.md): built once, kept in ~/.cache/streamtopology
	@PYTHONPATH=tests $(BIN)/python -m support.s3

kafka-broker: $(READY) # the Kafka of the tests: its jars, kept in ~/.cache/streamtopology; one line when that is missing
	@PYTHONPATH=tests $(BIN)/python -m support.kafka

crds: $(READY) # the CRDs and the admission policy, from what the parser goes by
	$(BIN)/python -m streamtopology.topology.crd > crds/streamtopologies.streamtopology.dev.yaml
	$(BIN)/python -m streamtopology.topology.crd snapshot > crds/streamtopologysnapshots.streamtopology.dev.yaml
	$(BIN)/python -m streamtopology.topology.crd admission > crds/admission-policy.yaml
	@echo "now the copies of the chart and of deploy/: scripts/render-manifests.sh HELM"

lint: $(READY) ## Style, format, types, imports between rooms, and the site of the docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/python -c "import streamtopology, importlinter.cli; importlinter.cli.lint_imports_command()" --no-logo
	$(BIN)/python scripts/check_unstable.py
	$(MAKE) --no-print-directory docs

docs: $(READY) ## The site of docs/ in build/site; a broken link or an orphan page fails
	$(BIN)/zensical build --clean --strict
	$(BIN)/python scripts/check_site.py build/site

reference: $(READY) # generated pages: command line, CRD, Python API, index of decisions, values of the chart
	$(BIN)/python scripts/command_line_reference.py > docs/reference/command-line.md
	$(BIN)/python scripts/reference_pages.py
	$(BIN)/python scripts/chart_reference.py

bench: $(READY) ## Benchmarks; results in build/bench
	@mkdir -p build/bench
	set -e; for bench in $(BENCHES); do $(BIN)/streamtopology bench $$bench --json build/bench/$$bench.json; done

papers: $(READY) ## The papers' experiments over five seeds, and their verdicts in docs/internals/papers.md (40 minutes)
	@mkdir -p build/papers
	-$(BIN)/streamtopology reproduce all --report build/papers --json build/papers/results.json
	$(BIN)/python scripts/papers_page.py build/papers/results.json

ARENA ?=
arena: $(READY) ## Other engines beside this one: Nexmark, ShuffleBench, a keyed count on unequal workers; pages in build/arena (7 hours)
	$(BIN)/streamtopology arena keyed
	$(BIN)/streamtopology arena shufflebench
	$(BIN)/streamtopology arena nexmark $(ARENA)

bench-operator: kube-api ## What the operator costs: 100 topologies on a real API server (about 5 minutes)
	@mkdir -p build/bench
	PYTHONPATH=tests $(BIN)/python -m support.kube.lent api $(BIN)/streamtopology bench operator --json build/bench/operator.json

bench-chaos: kube-api ## 300 kills, the operator and its ConfigMap included, on a real API server (about 40 minutes)
	@mkdir -p build/bench
	PYTHONPATH=tests $(BIN)/python -m support.kube.lent pods $(BIN)/streamtopology bench chaos --seed 1 --runs 6 --kills 50 --operator --json build/bench/chaos.json

bench-node: kube-node ## A changed policy until its first batch, on a real Kubernetes node (root; about 10 minutes)
	@mkdir -p build/bench
	scripts/node-packages.sh
	PYTHONPATH=tests $(BIN)/python -m support.kube.lent node $(BIN)/streamtopology bench node --json build/bench/node.json

clean: ## Remove what was built (not .venv, not the caches in ~/.cache)
	rm -rf build dist spark-warehouse metastore_db .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -path ./.venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): scripts/setup.sh uv.lock pyproject.toml $(wildcard */pyproject.toml)
	scripts/setup.sh

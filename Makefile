# Two commands are enough: `make demo` and `make test`. Both install what is missing (scripts/setup.sh).
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo test test-node kube-api kube-node s3-server kafka-broker crds lint bench bench-operator bench-node clean

BIN := .venv/bin
READY := .venv/ready
# One bench: `make bench BENCHES=kernels`. One room's tests: `make test TESTS=tests/routing`.
BENCHES ?= kernels planners dataplane latency heterogeneous reconfigure
TESTS ?= tests
# A process has one Spark session: tests that start clusters of their own get a process each.
RUNS := $(wildcard tests/runs/test_*.py)
# Kubernetes for the tests (docs/testing.md): built once, kept in ~/.cache/streamtopology/kube.
KUBE := PYTHONPATH=tests $(BIN)/python -m support.kube.binaries

help: ## Show what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY) ## A skewed stream on unequal executors: fixed routing, then re-routed live (about 5 minutes)
	$(BIN)/streamtopology demo --report build/demo

test: $(READY) $(if $(filter tests tests/jobs% tests/runs%,$(TESTS)),kafka-broker s3-server) $(if $(filter tests tests/kubernetes%,$(TESTS)),kube-api) ## Every test with real Spark, Kafka and API server
	$(BIN)/python -m pytest $(TESTS) --ignore tests/runs --ignore tests/node
	set -e; if [ "$(TESTS)" = tests ]; then for run in $(RUNS); do $(BIN)/python -m pytest $$run; done; fi

test-node: kube-node ## Tests on a real Kubernetes node, with containers (needs root, Debian or Ubuntu)
	scripts/node-packages.sh
	$(BIN)/python -m pytest $(if $(filter tests,$(TESTS)),tests/node,$(TESTS))

kube-api: $(READY) # etcd, kube-apiserver, kube-controller-manager, kubectl
	@$(KUBE) api

kube-node: $(READY) # those, and what a node needs, and helm
	@$(KUBE) node

s3-server: $(READY) # the S3 server of the tests (docs/testing.md): built once, kept in ~/.cache/streamtopology
	@PYTHONPATH=tests $(BIN)/python -m support.s3

kafka-broker: $(READY) # the Kafka of the tests: its jars by Maven, kept in ~/.cache/streamtopology; one line when that is missing
	@PYTHONPATH=tests $(BIN)/python -m support.kafka

crds: $(READY) # the CRD and the admission policy, from what the parser goes by
	$(BIN)/python -m streamtopology.routing.topology.crd > crds/streamtopologies.streamtopology.dev.yaml
	$(BIN)/python -m streamtopology.routing.topology.crd admission > crds/admission-policy.yaml
	@echo "now the copies of the chart and of deploy/: scripts/render-manifests.sh HELM"

lint: $(READY) ## Style, format, types, and who may import whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports --no-logo

bench: $(READY) ## Benchmarks; results in build/bench
	@mkdir -p build/bench
	set -e; for bench in $(BENCHES); do $(BIN)/streamtopology bench $$bench --json build/bench/$$bench.json; done

bench-operator: $(READY) ## What the operator costs: 100 topologies on a real API server (about 5 minutes)
	$(BIN)/python benchmarks/operator_bench.py --json build/bench/operator.json

bench-node: kube-node ## A changed policy until its first batch, on a real Kubernetes node (root; about 10 minutes)
	scripts/node-packages.sh
	$(BIN)/python benchmarks/reconfigure_node_bench.py

clean: ## Remove what was built (not .venv, not the caches in ~/.cache)
	rm -rf build dist spark-warehouse metastore_db .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -path ./.venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): scripts/setup.sh uv.lock pyproject.toml $(wildcard */pyproject.toml)
	scripts/setup.sh

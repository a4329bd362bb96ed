PYTHON ?= python3
STAMP := .venv/.installed

.DEFAULT_GOAL := help
# The tests and benchmarks start hundreds of Pythons, Spark's workers too: none should compile the package anew.
export PYTHONDONTWRITEBYTECODE :=
.PHONY: help .venv java classes hosts check test coverage release test-matrix demo demo-cluster demo-flume docs bench bench-full bench-spark power-cut-table crash test-stores clean

help: ## List the verbs
	@awk -F ':.*## ' '/^[a-z.-]+:.*## / { printf "%-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.venv: $(STAMP) ## Make the development environment from requirements-dev.txt

$(STAMP): requirements-dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or later is needed: say which one with 'make PYTHON=python3.11 ...'" >&2; exit 1; }
	@echo 'Installing the pinned packages, which takes a minute or more.'
	$(PYTHON) -m venv .venv
	@# pip uses one core of two, so it installs every other line of the list, which is whole, beside the rest.
	printf '0\n1\n' | DIST_EXTRA_CONFIG=$(CURDIR)/scripts/stored_wheels.cfg xargs -P 2 -I{} sh -c \
	  'awk "NR % 2 == {}" requirements-dev.txt | .venv/bin/python -m pip install -q --no-compile --no-deps -r /dev/stdin'
	.venv/bin/python -m pip install -q --no-deps --no-build-isolation --config-settings editable_mode=compat -e .
	@touch $@

java:
	@scripts/check_java.sh

classes: java $(STAMP) ## Create an archive of Spark's classes, in a minute: each JVM of the tests starts in half of its time
	@.venv/bin/python -m tests.support.spark.class_archive

CHECKS := check-code check-types check-known-types check-english
check: $(STAMP) ## Run the linters of code and of English, the type checkers, the import contracts and the spell check
	@$(MAKE) --no-print-directory -j 2 --output-sync=target $(CHECKS)

.PHONY: $(CHECKS)
check-types:
	.venv/bin/mypy

check-known-types:
	@scripts/check_known_types.sh

check-english:
	git ls-files -z | xargs -0 .venv/bin/codespell
	.venv/bin/python scripts/check_english.py

check-code:
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/lint-imports

# ALL=1 is what CI runs: one run, so that those that work have the cores while those that wait do not.
ALL ?=
MARKED := $(if $(ALL),,-m "not slow and not crash")
PROPERTIES ?= $(if $(ALL),ci,quick)
# More than the two cores of CI: a test waits for half of its time, for processes, servers and timeouts.
WORKERS ?= $(if $(ALL),6,5)
# What each process of a first run would else compile for itself.
COMPILED := .venv/.compiled
$(COMPILED): $(STAMP)
	@printf '%s\n' 'tests/[a-f]*' 'tests/[g-z]*' | xargs -P 2 -I{} sh -c '.venv/bin/python -m pytest -q --collect-only {}' >/dev/null 2>&1 || true
	@touch $@

# So that whoever reads the output sees what to make shorter.
SLOWEST := --durations 30 --durations-min 5
# Where memory has room for them, the fast tests keep their files there: a sync costs nothing. The rest have a disk.
IN_MEMORY := $(shell df --output=avail -B1M /dev/shm 2>/dev/null | awk 'NR > 1 && $$1 > 2048 { print "PYTEST_DEBUG_TEMPROOT=/dev/shm" }')
test: java $(if $(ALL),classes) $(COMPILED) ## Run the fast tests, which every behaviour has; ALL=1 adds slow ones, examples, and the laboratory, as CI does
	$(IN_MEMORY) .venv/bin/python -m pytest -q $(SLOWEST) $(MARKED) -n $(WORKERS) --dist loadfile --hypothesis-profile $(PROPERTIES)

coverage: java classes ## Run the tests as `make test` does and report which lines and branches they reach, Spark's workers' too
	.venv/bin/coverage erase
	.venv/bin/coverage run -m pytest -q -m "not slow and not crash" -n 2 --dist loadfile
	.venv/bin/coverage combine -q
	.venv/bin/coverage report

release: $(STAMP) ## Build the wheel and the sdist, check them, and run the README with the wheel in an empty environment
	.venv/bin/python scripts/release.py

CELLS ?=
PYTHONS ?=
TESTS ?=
JOBS ?= 2
test-matrix: java ## Run the tests on each Spark and Python; CELLS="spark4.0-py3.11", PYTHONS="3.11 3.13", TESTS=tests/spark for some, WITHOUT_SLOW=1
	$(PYTHON) scripts/test_matrix.py --pythons "$(PYTHONS)" --tests "$(TESTS)" $(if $(WITHOUT_SLOW),--without-slow) --jobs $(JOBS) $(CELLS)

demo: java $(STAMP) ## Run the demo
	.venv/bin/python demo/run.py

hosts:
	@$(PYTHON) -m demo.cluster.hosts

FLIGHTS ?=
demo-cluster: hosts java $(STAMP) ## As root: run the demo on three hosts that share only an object store, and kill processes
	.venv/bin/python -m demo.cluster.run $(if $(FLIGHTS),--flights $(FLIGHTS))

demo-flume: $(STAMP) ## Run an unchanged configuration of Flume's on the flights, and draw its graph
	.venv/bin/python -m demo.flume.run $(if $(FLIGHTS),--flights $(FLIGHTS))

DOCS_STAMP := .venv/.docs-installed
$(DOCS_STAMP): $(STAMP) requirements-docs.txt
	.venv/bin/python -m pip install -q --no-compile -r requirements-docs.txt
	@touch $@

docs: $(DOCS_STAMP) ## Build the documentation site in site/, and fail at any warning
	.venv/bin/python -m zensical build --strict --clean
	@touch site/.strict

BENCH_STAMP := .venv/.bench-installed
$(BENCH_STAMP): $(STAMP) requirements-bench.txt
	.venv/bin/python -m pip install -q -r requirements-bench.txt
	@touch $@

BENCH ?= --write
bench: $(BENCH_STAMP) ## Run the benchmarks, half an hour, write docs/benchmarks.md; BENCH="put peers" prints parts
	.venv/bin/python -m benchmarks.run $(BENCH)

bench-full: $(BENCH_STAMP) ## Run all combinations of the benchmarks, some 3 hours; BENCH as above
	.venv/bin/python -m benchmarks.run --full $(BENCH)

SPARK_BENCH ?= spark --write
bench-spark: java $(STAMP) ## Run Spark's benchmarks, write docs/benchmarks.md; SPARK_BENCH="spark-source" for a part
	.venv/bin/python -m benchmarks.run $(SPARK_BENCH)

power-cut-table: $(BENCH_STAMP) ## As root: cut the power under the channel and other products, write docs/power_cut_table.md
	@for tool in redis-server mkfs.ext4 mkfs.xfs; do command -v $$tool >/dev/null || \
	  { echo "redis-server, mkfs.ext4 and mkfs.xfs are needed: apt-get install redis-server e2fsprogs xfsprogs" >&2; exit 2; }; done
	.venv/bin/python -m benchmarks.power_cut

SIZE ?= full
crash: java classes ## Run the long recipes of the crash laboratory and all examples of each property; SIZE=ci runs the sizes of CI
	CRASH_SIZE=$(SIZE) .venv/bin/python -m pytest -q -m "crash or hypothesis" -n 2 --dist worksteal --hypothesis-profile $(SIZE)

STORES ?= .venv/stores
STORES_TESTS ?= tests/objects
test-stores: java $(STAMP) ## Run the tests of stores in full on all servers, Azurite and s3rver from npm, Ceph if it is installed; SIZE=ci for CI's sizes
	@scripts/install_stores.sh $(STORES)
	PATH="$(abspath $(STORES))/node_modules/.bin:$$PATH" CRASH_SIZE=$(SIZE) .venv/bin/python -m pytest -q -n 2 --dist worksteal $(STORES_TESTS)

clean: ## Remove the environment and whatever the tools and Spark left behind
	rm -rf .venv .matrix .cache site build dist *.egg-info .coverage .coverage.* .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	rm -rf spark-warehouse metastore_db derby.log demo/output
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One command per job; each makes its environment first. `make help` lists them.

VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.stamp
LOCK   := .ci/requirements.lock
NATIVE := $(shell find aioproducer -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi')

# The first Python that is new enough and can make environments; `make PYTHON=...` overrides.
PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3; do \
	$$python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$python && break; done)

# demo: `embedded` brokers inside this machine's Python, or `kafka`, three real ones.
CLUSTER ?= embedded
# test, cluster: more arguments for pytest. test: how many processes (0: all in one).
PYTEST_ARGS ?=
TEST_JOBS   ?= 2
# What only the system's package manager has. Tests that need one of these skip without it.
SYSTEM_PACKAGES ?= kcat krb5-kdc krb5-admin-server krb5-user chromium wrk maven default-jre-headless valgrind

# Byte code is kept: else each process of a test compiles everything that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv demo demo-spark gateway gateway-load test test-slow lint type bench bench-full bench-spark instructions sim sim-record mutants mutation explore interrupts fuzz asan cluster cluster-matrix cluster-spark faults exactly-once reliability memory scale soak docs docs-screens docs-publish package reproducible audit floors quickstart screenshots clean system-deps compat
.DELETE_ON_ERROR:

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

venv: $(STAMP) ## Make .venv: the package in place with its native core, and every tool

define make-venv
@test -n "$(PYTHON)" && "$(PYTHON)" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' \
	|| { echo "aioproducer needs Python 3.11 or newer with venv; found none (try make PYTHON=/path/to/python)" >&2; exit 1; }
test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
endef

$(STAMP): pyproject.toml setup.py $(LOCK) $(NATIVE)
	@echo "Making $(VENV): the package, built from source, and every tool (one to three minutes)"
	$(make-venv)
	$(BIN)/python .ci/install.py
	touch $@

# The demo on embedded brokers needs no development tools; the whole environment serves as well.
DEMO := $(if $(filter-out embedded,$(CLUSTER))$(wildcard $(STAMP)),$(STAMP),$(VENV)/.stamp-demo)
$(VENV)/.stamp-demo: pyproject.toml setup.py $(LOCK) $(NATIVE)
	@echo "Making $(VENV): the package with its command line, built from source (about half a minute)"
	$(make-venv)
	$(BIN)/python .ci/install.py demo
	touch $@

demo: $(DEMO) ## Load 336,776 flights into a cluster and verify them (CLUSTER=embedded|kafka)
	CLUSTER=$(CLUSTER) $(BIN)/python examples/demo.py

demo-spark: $(STAMP) ## The same flights from Parquet through Spark, exactly once (needs Java)
	CLUSTER=$(CLUSTER) $(BIN)/python examples/spark_demo.py

PORT ?= 8000
gateway: $(STAMP) ## The example gateway with a cluster and some traffic: open http://localhost:8000/ (PORT=)
	$(BIN)/python -m examples.gateway --port $(PORT)

gateway-load: $(STAMP) ## POST /events at 2,000/s beside the same app on aiokafka (5 minutes)
	$(BIN)/python -m bench gateway

# Tests marked slow, about 300 of 15,000, take two fifths of the time of all.
TEST = $(BIN)/python -m pytest -n $(TEST_JOBS) --dist loadfile
test: $(STAMP) ## Run the tests but the slow ones, on the native core and asyncio
	AIOPRODUCER_IMPL=native AIOPRODUCER_TEST_LOOP=asyncio $(TEST) -m "not slow" $(PYTEST_ARGS)

test-slow: $(STAMP) ## Run the slow tests, and the conformance tests on pure Python and on uvloop
	AIOPRODUCER_IMPL=native AIOPRODUCER_TEST_LOOP=asyncio $(TEST) -m slow $(PYTEST_ARGS)
	AIOPRODUCER_IMPL=pure AIOPRODUCER_TEST_LOOP=asyncio $(TEST) tests/conformance $(PYTEST_ARGS)
	AIOPRODUCER_IMPL=native AIOPRODUCER_TEST_LOOP=uvloop $(TEST) tests/conformance $(PYTEST_ARGS)

# sim: one SEED, or as many SEEDS as wanted, on all cores.
SEED ?=
SEEDS ?= 1000
sim: $(STAMP) ## Simulate clusters and faults on virtual time (SEED=n, or SEEDS=how many; SIM_ARGS=--heals-early)
	PYTHONPATH=tests $(BIN)/python -m simulation $(if $(SEED),--seed $(SEED),--seeds 1..$(SEEDS) --jobs $$(nproc)) $(SIM_ARGS)

sim-record: $(STAMP) ## Record what the first 300 seeds do, after a change that is to change it (tests/simulation/recorded_runs.txt)
	PYTHONPATH=tests $(BIN)/python -m simulation --record --jobs $$(nproc)

mutants: $(STAMP) ## Plant defects one by one; the simulation has to find each
	$(BIN)/python tests/simulation/mutants.py $(MUTANTS_ARGS)

# mutation: how many, and of which folders; MUTATION_ARGS: --jobs, --tests, --seconds.
MUTANTS ?= 1500
FOLDERS ?= core,runtime,net,records,wire
mutation: $(STAMP) ## Change single expressions and statements; tests have to fail (MUTANTS=1500 SEED=1 FOLDERS=core)
	PYTHONPATH=.ci $(BIN)/python -m tools.mutation --mutants $(MUTANTS) --seed $(or $(SEED),1) \
		--folders $(FOLDERS) --record $(MUTATION_ARGS)

# explore: for how long on each processor; EXPLORE_ARGS: --small, --mutants, names.
EXPLORE_MINUTES ?= 30
EXPLORE_ARGS    ?=
explore: $(STAMP) ## Explore every interleaving of small configurations of the core and the Spark commit (EXPLORE_MINUTES=30 EXPLORE_ARGS=--mutants)
	PYTHONPATH=tests $(BIN)/python -m exploration --minutes $(EXPLORE_MINUTES) $(EXPLORE_ARGS)

# interrupts: how many points, and which.
POINTS ?= 1000
interrupts: $(STAMP) ## Raise exceptions at random lines of the pure producer; prints what is left behind (POINTS=1000)
	$(BIN)/python tests/simulation/interrupts.py --sample $(POINTS) $(if $(SEED),--seed $(SEED))

# fuzz: how long each target, which ones (all of them), or one input to look at again.
FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?=
REPLAY ?=
fuzz: $(STAMP) ## Fuzz all that is read from peers (FUZZ_SECONDS=60 each, FUZZ_TARGETS=, REPLAY=file)
	@$(BIN)/python -c 'import atheris' 2>/dev/null \
		|| $(BIN)/python -m pip install --quiet --only-binary atheris --constraint $(LOCK) atheris 2>/dev/null \
		|| $(BIN)/python -m pip install --quiet --only-binary atheris 'atheris>=3.0' || true
	@PYTHONPATH=tests $(BIN)/python -m fuzz \
		$(if $(REPLAY),replay $(REPLAY),run --seconds $(FUZZ_SECONDS) $(FUZZ_TARGETS))

# asan: native code with its own copy of the package, so that the one in use stays as it is.
ASAN       := build/asan
ASAN_TESTS := tests/unit/records $(addprefix tests/unit/runtime/,send delivery bulk test_waits.py)
ASAN_RUN    = PYTHONPATH=$(ASAN) PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 \
	LD_PRELOAD=$$(gcc -print-file-name=libasan.so)
asan: $(STAMP) ## Run the tests of the native code under AddressSanitizer (needs gcc)
	rm -rf $(ASAN)
	CC=gcc CFLAGS="-fsanitize=address -fno-omit-frame-pointer -g -O1" LDFLAGS=-fsanitize=address \
		$(BIN)/python setup.py -q build --build-base build/asan-base --build-lib $(ASAN)
	$(ASAN_RUN) $(BIN)/python -P -c 'import aioproducer.runtime.send._fast_path as path; assert "$(ASAN)" in path.__file__'
	$(ASAN_RUN) $(BIN)/pytest -p no:cacheprovider $(ASAN_TESTS) $(PYTEST_ARGS)

cluster: $(STAMP) ## Run the tests that need real Kafka brokers
	AIOPRODUCER_TEST_SECURITY=1 AIOPRODUCER_TEST_NETWORK=1 AIOPRODUCER_TEST_REGISTRY=1 \
		$(BIN)/python -m pytest -m kafka $(PYTEST_ARGS)

cluster-matrix: $(STAMP) ## Kafka 0.8.2 to 4.x, every codec, keys, acks: 10,000 records each, read by their own consumer
	AIOPRODUCER_TEST_MATRIX=1 $(BIN)/python -m pytest tests/kafka/test_cluster_matrix.py $(PYTEST_ARGS)

faults: $(STAMP) ## Break three real brokers in every way: 50,000 records or 500 transactions each
	AIOPRODUCER_TEST_FAULTS=1 $(BIN)/python -m pytest -m faults tests/kafka $(PYTEST_ARGS)

# cluster-spark: how often tasks, workers, queries and brokers die.
REPEATS ?= 20
cluster-spark: $(STAMP) ## Kill tasks, workers, queries and brokers under real Spark and Kafka (REPEATS=20)
	rm -rf build/spark-faults
	@$(BIN)/python -c 'import grpc' 2>/dev/null \
		|| $(BIN)/python -m pip install --quiet --constraint $(LOCK) grpcio grpcio-status googleapis-common-protos || true
	AIOPRODUCER_TEST_SPARK_FAULTS=$(REPEATS) AIOPRODUCER_TEST_QUERIES=$$(($(REPEATS) * 20)) \
		AIOPRODUCER_TEST_SPARK_RECORD=build/spark-faults \
		$(BIN)/python -m pytest tests/spark/test_exactly_once.py tests/spark/test_masters.py \
		tests/embedded/test_two_phase.py tests/unit/spark/exactly_once/test_two_phase_property.py $(PYTEST_ARGS)
	$(BIN)/python -m bench spark-faults

# exactly-once: how often each load is killed, and when (any seed).
KILLS ?= 50
exactly-once: $(STAMP) ## Kill `load --exactly-once` at random points, embedded and real (KILLS=50)
	AIOPRODUCER_TEST_KILLS=$(KILLS) AIOPRODUCER_TEST_SEED=$(SEED) \
		$(BIN)/python -m pytest tests/embedded/test_exactly_once_load.py $(PYTEST_ARGS)

reliability: $(STAMP) ## The same beside aiokafka and confluent-kafka, into bench/RELIABILITY.md
	$(BIN)/python -m bench reliability transaction-faults

memory: $(STAMP) ## Overload a frozen cluster: is memory bounded, the line served in order?
	$(BIN)/python -m bench memory

scale: $(STAMP) ## Cost and memory by partitions, brokers and requests; a simulated day of 100 brokers
	$(BIN)/python -m bench scale

MINUTES ?= 30
RATE    ?= 20000
soak: $(STAMP) ## Send for long while something breaks every 20 s (MINUTES=30 RATE=20000 SEED=1)
	MINUTES=$(MINUTES) RATE=$(RATE) SEED=$(SEED) $(BIN)/python -m bench soak

lint: $(STAMP) ## Check style, formatting and who imports whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/lint-imports --no-logo --config .importlinter.pure

# pyright looks for the package with the first python on the PATH, whatever it is told.
type: $(STAMP) ## Check types: mypy strict, and that every public name has one
	$(BIN)/mypy
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pyright --verifytypes aioproducer --ignoreexternal

# bench: everything the bars need, or what is named: BENCH="latency aiokafka", BENCH=import, ...
PYTHONS ?=
# bench, instructions: other interpreters to measure, as PYTHONS="python3.12 python3.13"; of the
# parts of `bench` these are `pythons` (BENCH=pythons).
BENCH ?=
bench: $(STAMP) ## Measure cost, rate, latency and memory beside other clients (BENCH=parts PYTHONS=)
	AIOPRODUCER_BENCH_PYTHONS="$(PYTHONS)" $(BIN)/python -m bench $(BENCH)

bench-full: $(STAMP) ## The whole matrix: sizes, codecs, partitions, keys (hours)
	$(BIN)/python -m bench full

bench-spark: $(STAMP) ## Spark into Kafka beside Spark's own sink (needs Java and Maven; 10 minutes)
	$(BIN)/python -m bench spark

instructions: $(STAMP) ## Count instructions per record, beside those recorded (needs valgrind; PYTHONS=)
	AIOPRODUCER_BENCH_PYTHONS="$(PYTHONS)" $(BIN)/python -m bench instructions

docs: $(STAMP) ## Build the site into build/docs/site, strictly; run every snippet of its pages
	PYTHONPATH=.ci $(BIN)/python -m tools.site
	$(BIN)/python -m pytest tests/test_docs.py tests/test_pages.py tests/test_snippets.py tests/test_guides.py tests/test_cli_guide.py \
		tests/test_migration.py tests/test_site.py tests/test_site_in_browser.py $(PYTEST_ARGS)

FOLDER ?= build/docs/versions
docs-publish: $(STAMP) ## Build the site and add it to those of other versions in FOLDER=
	PYTHONPATH=.ci $(BIN)/python -m tools.site
	PYTHONPATH=.ci $(BIN)/python -m tools.site publish $(FOLDER)

docs-screens: $(STAMP) ## Pictures of every page at 1280 and 390 px in build/docs/screens; checks what does not fit (needs Chromium)
	PYTHONPATH=.ci $(BIN)/python -m tools.site
	PYTHONPATH=.ci:tests $(BIN)/python -m tools.site.screens

# compat: which programs (all of them), a folder with checkouts of them, how long.
PROGRAMS ?=
SOURCES  ?=
COMPAT_MINUTES ?= 90
compat: $(STAMP) ## aiokafka's, FastStream's, kstreams', kafka-python's and confluent-kafka's own tests with the drop-in (PROGRAMS= SOURCES=dir)
	PYTHONPATH=.ci $(BIN)/python -m tools.compat --minutes $(COMPAT_MINUTES) \
		$(if $(SOURCES),--sources $(SOURCES)) $(PROGRAMS)

# package: other interpreters to build and try wheels for, as PYTHONS="python3.12 python3.13"
package: $(STAMP) ## Build sdist, wheel and the list of components into dist/, and check them (PYTHONS=)
	PYTHONPATH=.ci $(BIN)/python -m tools.package $(addprefix --python ,$(PYTHONS))

reproducible: $(STAMP) ## The same, built twice and compared
	PYTHONPATH=.ci $(BIN)/python -m tools.package --twice

audit: $(STAMP) ## Look for known vulnerabilities in the locked versions and the floors
	$(BIN)/python .ci/audit.py

floors: $(STAMP) ## Run the tests with the oldest versions of the packages that users install
	$(BIN)/python .ci/floors.py

quickstart: $(STAMP) ## The quickstart of README.md in an empty folder, timed (builds the wheel if needed)
	test -n "$(wildcard dist/*.whl)" || PYTHONPATH=.ci $(BIN)/python -m tools.package
	PYTHONPATH=.ci $(BIN)/python -m tools.package.quickstart

screenshots: $(STAMP) ## Make the pictures of the command line in the docs anew, from real runs
	$(BIN)/python .ci/screenshots.py

system-deps: ## Install what only the system has (kcat, Kerberos, Chromium, wrk, Maven, Java, valgrind)
	@.ci/system-deps $(SYSTEM_PACKAGES)

clean: ## Remove everything that was generated, .venv included
	rm -rf $(VENV) build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	rm -f aioproducer/*/*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

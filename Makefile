# Each goal does its own set-up in .venv; stamps under .venv/made make repeated runs quick.
#
#   make run        build, install and start a broker on 127.0.0.1:9092, data in ./data (ARGS="--override …")
#   make run-cluster  three brokers, each a controller as well, on 127.0.0.1:9092 to 9094; KIND=kafka or zookeeper (Java 17, Maven)
#   make test       every test but the slow ones (PYTEST="-k name -x")        make test-slow   those too
#   make test-quick a minute: the rules of the house, formats, settings, coordinators
#   make test-spark the pipeline on Spark (Java 17, some 1,000 MB of packages)
#   make test-integrations  Kafka Connect, Flink, NestJS, rsyslog and others while the broker restarts (Java 17, Maven, Node.js)
#   make spark      what the Spark pipeline needs beside kbroker, into .venv (some 450 MB; and Java 17)
#   make lint       ruff, mypy --strict, cython-lint
#   make soak       groups of 50 real consumers that join, leave, hang and die (Java); SECONDS=300 SEED=7
#   make faults     brokers of a cluster that die, hang and are cut off, under load (Java); ROUNDS=200 SEED=7
#   make frozen     a ZooKeeper controller that stands still amid a swap of all replicas (Java); KIND=kafka
#   make walk       administrative requests under controllers of both kinds, answers and images compared (Java, Maven); STEPS=2000
#   make check-answers  every answer of real brokers judged; KIND=node|fsync|workers|cluster|kafka|kafka-cluster SECONDS=60
#   make simulate   whole brokers on virtual time, every answer judged; SIMULATIONS=100000 SEED=1 KIND=quorum   make mutations  what it finds
#   make simulate-debug     the same on the debug build, with invariants asserted
#   make simulate-coverage  how much of the code such histories reach, a table of each file; SIMULATIONS=300
#   make strangers  mutated frames at a controller's listener; COUNT=1000000 SEED=1   make strangers-debug  on the debug build
#   make histories  replication under faults on virtual time; HISTORIES=100000 SEED=1
#   make bench      each compiled module and storage operation, compared with the last commit
#   make bench-kafka  beside Apache Kafka (Java, Maven); BENCH="--cells 'one-*' --rounds 2"    make profile CELL=one-50
#   make counts     what requests, starts, idle minutes and partitions cost, counted, beside bench/counts.json; COUNTS="--part requests"
#   make debug      the same tests on extensions built with every check on, in build/debug
#   make dist-test  sdist and wheel: what they hold, and that they work outside the tree
#   make wheel      wheels for x86-64 and arm64 that need no compiler where they are installed, into dist/; make wheel-test
#   make wheels     a wheel for each of Python 3.11 to 3.14, built and tried on a bare system that has it (root, debootstrap)
#   make fresh-machine  both commands of the README on bare Debian 12 and 13, Ubuntu 24.04 and 26.04 (root, debootstrap);
#                   PYTEST="-k 'Debian and 12'"   make fresh-machine-today  another one each day, in some minutes
#   make test-image docker/'s image and compose files built and run by podman (root; podman, podman-compose, debootstrap)
#   make test-tools what some tests need beyond Python and a C compiler: Java 17, Maven, Node.js, kcat, Chromium, valgrind, strace, for root debootstrap (Debian)

PYTHON ?= python3
CC ?= cc
VENV := .venv
BIN := $(VENV)/bin
MADE := $(VENV)/made
# A mirror that fails for a moment is asked again.
PIP := $(BIN)/python -m pip --disable-pip-version-check --retries 10 --timeout 60 install --quiet

# A plain path entry: the import hook of setuptools' default would cost every start some milliseconds.  KBROKER_EXT names
# no extension, because those are built in place already.
EDITABLE := KBROKER_EXT=none $(PIP) --no-build-isolation --config-settings editable_mode=compat --editable .

# Tests wait for brokers and clients as much as they compute.  A file's tests stay together, as they share brokers.
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 4 ? n : 4)))
SIDE_BY_SIDE := -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# $(call requirements,"build-system"]["requires") installs a list of pyproject.toml.
requirements = @$(BIN)/python -c 'import subprocess, sys, tomllib; \
  wanted = tomllib.load(open("pyproject.toml", "rb"))[$(1)]; \
  sys.exit(subprocess.call([*"$(PIP)".split(), *wanted]))'
extra = $(call requirements,"project"]["optional-dependencies"]["$(1)")

EXTENSION_SOURCES := setup.py $(shell find kbroker -name '*.pyx' -o -name '*.pxd' -o -name '*.h')
PYTHON_SOURCES := $(shell find kbroker -name '*.py')
BENCH ?=
# Those that show on installed packages what no import shows: a start, each codec by a real client, commands, files.
OUTSIDE := tests/broker/test_start.py tests/cli/test_against_broker.py tests/cli/test_dump_log.py \
  tests/compat/test_confluent.py tests/records/test_vectors.py tests/storage/test_kafka_files.py

.PHONY: help install run run-cluster wheel wheel-test wheels fresh-machine fresh-machine-today spark test test-quick test-slow test-kafka test-integrations test-integrations-today test-spark test-image test-tools soak faults frozen walk check-answers check-rights histories simulate simulate-coverage simulate-debug strangers strangers-debug mutations lint bench bench-kafka counts profile debug debug-build coverage-build dist-test docs clean distclean check-system
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#   //p' Makefile

# ---------------------------------------------------------------------------------------------- set-up

# All that is missing is named at once.  Where there is no Python, what belongs to it cannot be looked for.
check-system:
	@missing=""; packages=""; python="$(notdir $(PYTHON))"; \
	lack() { missing="$$missing  $$1\n"; packages="$$packages$${2:+ $$2}"; }; \
	if ! command -v $(PYTHON) >/dev/null; then \
	  lack "Python 3.11 or newer ($(PYTHON) not found), its venv module and its headers" "python3 python3-venv python3-dev"; \
	elif ! $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
	  lack "Python 3.11 or newer ($(PYTHON) is $$($(PYTHON) -V 2>&1)); name one: make PYTHON=python3.11" ""; \
	else \
	  $(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || lack "Python's venv module" "$$python-venv"; \
	  test -f "$$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" \
	    || lack "Python's headers (Python.h)" "$$python-dev"; \
	fi; \
	if ! command -v $(CC) >/dev/null; then lack "a C compiler ($(CC) not found)" build-essential; \
	elif ! printf '#include <stdlib.h>\nint main(void) { return 0; }\n' | $(CC) -x c -o /dev/null - 2>/dev/null; then \
	  lack "the headers and libraries of C ($(CC) cannot build a program)" libc6-dev; fi; \
	if [ -n "$$missing" ]; then \
	  printf "missing:\n$$missing" >&2; \
	  if [ -n "$$packages" ]; then echo "Debian: apt-get install$$packages" >&2; fi; \
	  exit 1; \
	fi

$(MADE)/venv:
	@$(MAKE) --no-print-directory check-system
	$(PYTHON) -m venv $(VENV)
	@mkdir -p $(MADE)
	@touch $@

# The build's own requirements come first: the extensions are built in place, without an isolated environment.
$(MADE)/requirements: $(MADE)/venv pyproject.toml
	$(call requirements,"build-system"]["requires")
	@touch $@

$(MADE)/build: $(MADE)/requirements $(EXTENSION_SOURCES)
	$(BIN)/python setup.py -q build_ext --inplace
	@touch $@

$(MADE)/install: $(MADE)/requirements pyproject.toml | $(MADE)/build
	$(EDITABLE)
	@touch $@

# What only tests and benchmarks call in C.
TEST_EXTENSIONS := $(wildcard tests/extensions/*.pyx)
$(MADE)/test-extensions: $(MADE)/build $(TEST_EXTENSIONS)
	KBROKER_TEST_EXTENSIONS=1 KBROKER_EXT="$$(echo $(basename $(notdir $(TEST_EXTENSIONS))) | tr ' ' ,)" \
	  $(BIN)/python setup.py -q build_ext --inplace
	@touch $@

$(MADE)/test: $(MADE)/install $(MADE)/test-extensions
	$(call extra,test)
	@touch $@

# Drives Chromium through the console's pages.
$(MADE)/browser: $(MADE)/test
	$(call extra,browser)
	@touch $@

# The types of Spark and pandas are part of what mypy checks.
$(MADE)/lint: $(MADE)/spark
	$(call extra,lint)
	@touch $@

$(MADE)/spark: $(MADE)/test
	$(call extra,spark)
	$(call extra,iceberg)
	@touch $@

$(MADE)/bench: $(MADE)/install
	$(call extra,bench)
	@touch $@

# Where PYTHONDONTWRITEBYTECODE is set, as in many containers, each start of a broker would compile all modules anew (0.15
# s of it), and each of pytest's processes all tests (10 s).
export PYTHONDONTWRITEBYTECODE :=
$(MADE)/bytecode: $(PYTHON_SOURCES) | $(MADE)/venv
	$(BIN)/python -m compileall -q kbroker
	@touch $@

install: $(MADE)/build $(MADE)/install $(MADE)/bytecode

# ---------------------------------------------------------------------------------------------- use

run: install
	@KBROKER_HOME="$${KBROKER_HOME:-$(CURDIR)}" exec $(BIN)/kbroker start $(ARGS)

run-cluster: install $(MADE)/test
	@exec $(BIN)/python -m tests.run_cluster $(if $(KIND),--kind $(KIND)) $(ARGS)

spark: install
	$(call extra,spark)

# The wheels' tools, zig's compiler among them, are some 90 MB.
$(MADE)/wheel: $(MADE)/install
	$(call extra,wheel)
	@touch $@

# As root, with debootstrap.
wheel-test: wheel $(MADE)/test
	$(BIN)/python -m pytest -m "slow" tests/package/test_bare_machine.py -k "Debian and 12" $(PYTEST)

# Wheels that are in dist/ are tried, others made: all are made anew here.  As root, with debootstrap.
wheels: install $(MADE)/test
	rm -f dist/*.whl
	$(BIN)/python -m pytest -m "slow" tests/package/test_bare_machine.py $(PYTEST)

# As root, with debootstrap: some 15 minutes for each system.
fresh-machine: install $(MADE)/test
	$(BIN)/python -m pytest -m "slow" tests/package/test_fresh_machine.py $(PYTEST)

fresh-machine-today: install $(MADE)/test
	$(BIN)/python -m pytest -m "slow" tests/package/test_system_of_the_day.py $(PYTEST)

wheel: $(MADE)/wheel
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python docker/wheel.py

docs: install
	$(BIN)/kbroker config --markdown > docs/configuration.md
	$(BIN)/python -m kbroker.metrics.documentation > docs/metrics.md
	$(BIN)/python -m kbroker.metrics.documentation kafka > docs/metrics-kafka.md
	$(BIN)/python -m kbroker.replay.sources.documentation

# ---------------------------------------------------------------------------------------------- tests

# PYTEST="-n 0" runs them one by one, as --pdb needs it.
test: install $(MADE)/test
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "not slow and not spark and not dist" $(PYTEST)

# What a change of pure code needs: rules of the house, formats, settings, coordinators.  Nothing starts a broker's process.
QUICK := tests/assembly tests/config tests/coordinator tests/gate tests/metadata tests/protocol tests/quotas tests/records
test-quick: install $(MADE)/test
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "not slow and not kafka and not compat and not spark and not fuzz" \
	  tests/test_layers.py $(QUICK) $(PYTEST)

test-slow: install $(MADE)/spark $(MADE)/browser
	$(BIN)/python -m pytest -m "not dist" $(PYTEST)

# Spark's tests: Java 17, and some 1,000 MB of packages at the first run, two releases of Spark among them.  The others of the pipeline are `make test`'s.
test-spark: install $(MADE)/spark
	$(BIN)/python -m pytest -m "spark and not slow" tests/replay $(PYTEST)

test-kafka: install $(MADE)/test
	$(BIN)/python -m pytest -m "kafka or compat" $(PYTEST)

# Programs that speak Kafka (docs/integrations.md): some 10 minutes, and some 500 MB of packages at the first run.
test-integrations: install $(MADE)/test
	@if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then apt-get update -qq; fi
	$(BIN)/python -m pytest -m "integration or not slow" tests/integrations $(PYTEST)

# One of them, another each day; what cannot be fetched is a skip that says so, in CI as well.
PROGRAMS := $(sort $(filter-out %/test_page.py,$(wildcard tests/integrations/test_*.py)))
test-integrations-today: install $(MADE)/test
	set -- $(PROGRAMS); shift $$(($$(date -u +%-j) % $$#)); CI= $(BIN)/python -m pytest -m integration $$1 $(PYTEST)

# Debian's podman, podman-compose, runc, netavark, aardvark-dns and iptables.  CONTAINER_ENGINE=folder keeps the images.
test-image: install $(MADE)/test
	$(BIN)/python -m pytest -m "slow" tests/images/test_engine.py $(PYTEST)

SECONDS ?= 300
soak: install $(MADE)/test
	$(BIN)/python -m tests.scenarios.soak.run --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

# Three brokers and ZooKeeper under producers and groups, killed, stopped and cut off: make faults ROUNDS=200 SEED=7; the same with Apache Kafka: KIND=kafka
ROUNDS ?= 20
faults: install $(MADE)/test
	$(BIN)/python -m tests.scenarios.faults.run --rounds $(ROUNDS) --kind $(or $(KIND),kbroker) $(if $(SEED),--seed $(SEED))

# A controller that stands still for 75 s amid a swap of all replicas, in three moments (`make test-slow` has it): make frozen; KIND=kafka
frozen: install $(MADE)/test
	$(BIN)/python -m tests.scenarios.faults.swap --kind $(or $(KIND),kbroker)

# The same administrative requests to a cluster under kbroker's controller and to one under Apache Kafka's: make walk STEPS=2000 SEED=7
STEPS ?= 200
walk: install $(MADE)/test
	KBROKER_WALK_STEPS=$(STEPS) $(if $(SEED),KBROKER_WALK_SEED=$(SEED)) \
	  $(BIN)/python -m pytest -m slow -n 0 -s tests/cluster/kraft/test_walk_of_controllers.py $(PYTEST)

# Requests of all APIs by a client with drawn rights, to Apache Kafka and kbroker: make check-rights SECONDS=600 SEED=7
check-rights: install $(MADE)/test
	$(BIN)/python -m tests.differential.rights --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

# Raw pipelined connections whose every answer is judged: make check-answers KIND=cluster SECONDS=600 SEED=7
check-answers: install $(MADE)/test
	$(BIN)/python -m tests.scenarios.answers.run --kind $(or $(KIND),node) --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

# Replicated partitions, their fetchers and a controller under faults on virtual time: make histories HISTORIES=100000
HISTORIES ?= 10000
histories: install $(MADE)/test
	KBROKER_HISTORIES=$(HISTORIES) KBROKER_HISTORY_SEED=$(or $(SEED),1) \
	  $(BIN)/python -m pytest tests/replication/simulation -k stays -n $(WORKERS) --timeout 0 $(PYTEST)

# Whole brokers on virtual time, every answer judged: make simulate SIMULATIONS=100000 SEED=1; one again: REPLAY=77,
# made small: SHRINK=77; brokers of a KRaft cluster, which no seed draws by itself: KIND=kraft under a model of its
# controllers, KIND=quorum under kbroker's own.
SIMULATIONS ?= 1000
simulate: install $(MADE)/test
	$(BIN)/python -m tests.simulation $(if $(KIND),--kind $(KIND)) $(if $(REPLAY),--replay $(REPLAY),$(if $(SHRINK),--shrink $(SHRINK),\
	  --simulations $(SIMULATIONS) --seed $(or $(SEED),1)))

# The same where classes that hold state assert their invariants with each change.
simulate-debug: debug-build
	cd build/debug && PYTHONPATH="$(CURDIR)/build/debug" ../../$(BIN)/python -m tests.simulation \
	  --simulations $(SIMULATIONS) --seed $(or $(SEED),1)

# Mutated frames at a controller's listener, in one process with it: make strangers COUNT=1000000 SEED=1; the same where
# classes that hold state assert their invariants with each change: make strangers-debug
COUNT ?= 100000
STRANGERS = tests.fuzz.strangers --count $(COUNT) --seed $(or $(SEED),1)
strangers: install $(MADE)/test
	$(BIN)/python -m $(STRANGERS)

strangers-debug: debug-build
	cd build/debug && PYTHONPATH="$(CURDIR)/build/debug" ../../$(BIN)/python -m $(STRANGERS)

# How much of connections, requests, the log and replication histories reach: a table of each file; FILES=fast_append lists
# what is not reached there
simulate-coverage: coverage-build
	cd build/coverage && PYTHONPATH="$(CURDIR)/build/coverage" ../../$(BIN)/python -m tests.simulation.coverage \
	  --simulations $(SIMULATIONS) --seed $(or $(SEED),1) $(FILES)

# Faults that are put into copies of the tree one by one, each of which the simulation has to find: make mutations ONLY=commit-at-append
mutations: install $(MADE)/test
	$(BIN)/python -m tests.simulation.mutations $(ONLY)

lint: install $(MADE)/lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/cython-lint --max-line-length 120 kbroker/_fast

# Results are stored in bench/results/parts and compared with the last commit's.
bench: install $(MADE)/bench $(MADE)/test
	$(BIN)/python bench/parts.py $(PYTEST)

# kbroker and Apache Kafka side by side, interleaved: needs Java 17 and Maven.  BENCH="--list" shows the cells.
bench-kafka: install $(MADE)/bench
	$(BIN)/python bench/side_by_side.py $(BENCH)

# What requests, starts, idle minutes and partitions cost, counted, beside bench/counts.json: fails where something has
# grown.  Some of it: make counts COUNTS="--part requests"; to keep what is found: COUNTS="--write".  Needs valgrind, strace.
counts: install $(MADE)/test $(MADE)/test-extensions $(MADE)/bench
	$(BIN)/python -m bench.counting $(COUNTS)

# Where the time of a request goes: make profile CELL=one-50 (perf and py-spy).
CELL ?= one-50
profile: install $(MADE)/bench
	$(BIN)/python profiling/run.py $(CELL)

# A copy of the tree, so that another build never replaces the fast one.
debug-build coverage-build: %-build: install $(MADE)/test
	@mkdir -p build/$*
	@find build/$* -path build/$*/build -prune -o -type f ! -name '*.so' ! -path '*/_fast/*.c' ! -path '*/extensions/*.c' -exec rm {} +
	tar -cf - --exclude=./.venv --exclude=./build --exclude=./.git --exclude=./data --exclude='./.*_cache' --exclude='*.so' \
	  --exclude=__pycache__ . \
	  | tar -xf - -C build/$*
	cd build/$* && KBROKER_BUILD=$* KBROKER_TEST_EXTENSIONS=1 ../../$(BIN)/python setup.py -q build_ext --inplace

debug: debug-build
	cd build/debug && PYTHONPATH="$(CURDIR)/build/debug" ../../$(BIN)/python -m pytest $(SIDE_BY_SIDE) \
	  -m "not slow and not spark and not dist" $(PYTEST)

# The wheel is built from the sdist, and the tests come from the sdist, so neither may lack a file.  The environment holds
# what pip brings with the wheel alone, until the tests of the sdist borrow pytest and clients from the tree's.
dist-test: install $(MADE)/test
	rm -rf build/dist
	$(BIN)/python setup.py -q sdist --dist-dir build/dist
	$(BIN)/python -m pip --disable-pip-version-check wheel --quiet --no-deps --no-build-isolation --wheel-dir build/dist build/dist/*.tar.gz
	set -e; outside=$$(mktemp -d); trap 'rm -rf "$$outside"' EXIT; \
	  $(BIN)/python -m venv "$$outside/venv"; \
	  "$$outside/venv/bin/python" -m pip --disable-pip-version-check --retries 10 --timeout 60 install --quiet build/dist/*.whl; \
	  DIST_ARCHIVES="$(CURDIR)/build/dist" DIST_PYTHON="$$outside/venv/bin/python" $(BIN)/python -m pytest -m "not slow" tests/package; \
	  site='import sysconfig; print(sysconfig.get_path("purelib"))'; \
	  $(BIN)/python -c "$$site" > "$$("$$outside/venv/bin/python" -c "$$site")/borrowed.pth"; \
	  tar -xzf build/dist/*.tar.gz -C "$$outside" --strip-components=1; \
	  rm -rf "$$outside/kbroker"; \
	  cd "$$outside" && venv/bin/python -m pytest $(SIDE_BY_SIDE) $(OUTSIDE) $(PYTEST)

test-tools:
	@set -e; needed=""; \
	java_ok() { command -v javac >/dev/null && java -version 2>&1 | grep -Eq 'version "(1[7-9]|[2-9][0-9])'; }; \
	java_ok || needed="$$needed java"; \
	for tool in mvn node npm kcat chromium chromedriver valgrind strace; do command -v $$tool >/dev/null || needed="$$needed $$tool"; done; \
	if [ "$$(id -u)" = 0 ]; then command -v debootstrap >/dev/null || needed="$$needed debootstrap"; fi; \
	if [ -z "$$needed" ]; then echo "test tools: all there"; exit 0; fi; \
	command -v apt-get >/dev/null || { echo "install these yourself (no apt-get here):$$needed (Java 17 or newer)" >&2; exit 1; }; \
	as_root=""; if [ "$$(id -u)" != 0 ]; then as_root=sudo; fi; \
	echo "test tools: installing$$needed"; \
	$$as_root apt-get -o Acquire::Retries=5 update -qq; \
	packages=""; \
	for tool in $$needed; do case $$tool in \
	  java) if apt-cache show openjdk-17-jdk-headless >/dev/null 2>&1; then packages="$$packages openjdk-17-jdk-headless"; \
	        else packages="$$packages default-jdk-headless"; fi;; \
	  mvn) packages="$$packages maven";; \
	  node) packages="$$packages nodejs";; \
	  chromedriver) packages="$$packages chromium-driver";; \
	  *) packages="$$packages $$tool";; \
	esac; done; \
	$$as_root env DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=5 install -y -qq --no-install-recommends $$packages

# ---------------------------------------------------------------------------------------------- tidying

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	find kbroker/_fast tests/extensions -name '*.so' -o -name '*.c' -o -name '*.html' | xargs rm -f $(MADE)/build $(MADE)/test-extensions $(MADE)/bytecode
	find kbroker tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)

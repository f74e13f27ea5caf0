# make setup   everything this needs, once          make check   lint, types, layers, unit, simulation (2 min on 2 cores)
# make test    check + nodes in one process + simulation at length + contract + integration without the tests marked long
#              + the quick faults + a few tests on containers, where Docker runs
# make integration   contract + integration, all of it (25 min)
# make demo ARGS='--all'   the main job on real flights, with real kills
# make faults  every fault with real processes and servers, judged; writes build/faults.json (some 40 min)
# make containers   the integration suite over three brokers and three ZooKeeper servers in containers (Docker)
# make compose  the same and three nodes, to stay        make compose ARGS='down -v'
# make features · sim (seven times the simulation of make test, 40 min) · mutants · bench · lock · bench-peers (other systems beside halog, 40 min)
# make bench-rebalance ARGS='--objects 100000'   Spark moves objects under traffic, its driver is killed at half way
SHELL := /bin/sh
# Where this is set, as in many images, each of a run's hundred processes compiles everything anew: 4 s for pytest's workers.
unexport PYTHONDONTWRITEBYTECODE
PY := .venv/bin/python
PYTEST := $(PY) -m pytest
ARGS ?=
PACKAGES = $(wildcard halog mappers restore spark_jobs)
CHECKED = $(PACKAGES) $(wildcard tools benchmarks examples tests)
FAST = $(wildcard tests/unit tests/sim tests/scenarios)
# Their files that have tests of nodes, and those that have others: `make check` lists both anew.
FILES := build/test_files
SLOW = $(wildcard tests/contract tests/integration)
# Images are built and six servers started before the first test: that is not part of its time.
CONTAINERS = $(PYTEST) --site containers -o timeout_func_only=true -rs tests/containers tests/integration/cluster
CHECK_LIMIT_S := 120
CORES := $(shell nproc)
# More than cores: half of the unit tests' time is waiting. A file stays together: its fixtures are played once.
WORKERS := $(shell echo $$((2 * $$(nproc) + 2)))
# Nodes in one process wait for more than half of their time, and no two tests share any.
NODE_WORKERS := $(shell echo $$((4 * $$(nproc))))
# Each with servers and nodes of its own, a gigabyte of memory. There are more than cores: a lane waits for faults and timeouts, too. What
# shares servers stays together (tests/workers.py).
LANES := $(shell n=$$(nproc); echo $$((n < 2 ? 2 : 4)))
SEEDS ?= 6000
# Partitions that move from node to node; transactions over several partitions; mappings that change; partitions that are
# defined and disabled; key directories; two sites that part and are merged (half a minute of both cores); late requests; stores that
# hold what was pushed; outages of the log, once and twice; lines that are cut; replicas that fall silent; readers of moments; initiators
# that wait; clusters that are upgraded.
OTHER_SEEDS := moves:600 banks:300 shops:300 lives:300 markets:300 sites:600 late:300 pushed:300 rough:300 outages:300 parted:300 silences:300 twice:150 stills:300 patient:150 upgrading:300

.PHONY: setup check test integration containers compose faults demo features sim mutants bench bench-peers bench-rebalance lock clean fresh-outcomes

setup:
	@tools/setup.sh

# Tests are compiled and listed beside mypy, once: each of the workers would compile them for itself, and collect all. mypy checks
# tests as well, those of servers that nothing here runs, too: what is only style in a test it does not say (pyproject.toml).
check: setup
	@start=$$(date +%s) && \
	$(PY) -m ruff check -q $(CHECKED) && rm -rf $(FILES) && mkdir -p $(FILES) || exit 1; \
	$(PYTEST) -q --collect-only --list-files $(FILES) $(FAST) >$(FILES)/said 2>&1 & listing=$$!; \
	$(PY) -m mypy --strict $(CHECKED); typed=$$?; \
	wait $$listing || { tail -n 60 $(FILES)/said >&2; exit 1; }; \
	[ $$typed = 0 ] && \
	PYTHONPATH=. $(PY) -m tools.imports && \
	$(PYTEST) $(FAST) --listed $(FILES)/others -m "not nodes" -n $(WORKERS) --dist loadfile && \
	took=$$(( $$(date +%s) - start )) && echo "make check: $$took s" && \
	{ [ $$took -lt $(CHECK_LIMIT_S) ] || echo "make check should take less than $(CHECK_LIMIT_S) s: make it faster" >&2; }

# Old outcomes would count tests that no longer exist.
fresh-outcomes:
	@rm -f build/outcomes.json build/features.json

# Nodes in one process wait for a quarter of their time and more: the simulation runs beside them, and takes no longer (a minute per
# 4,000 seeds and core).
test: fresh-outcomes check
	@mkdir -p build; nice -n 19 $(PY) -m tests.sim.run --seeds $(SEEDS) $(OTHER_SEEDS:%=--also %) --processes $(CORES) \
		>build/simulation 2>&1 & simulated=$$!; \
	$(PYTEST) $(FAST) --listed $(FILES)/nodes -m nodes -n $(NODE_WORKERS) --dist worksteal --durations 40; nodes=$$?; \
	wait $$simulated; held=$$?; cat build/simulation; exit $$((nodes + held))
	$(PY) -m tools.warm
	$(PYTEST) $(SLOW) -m "not long" -n $(LANES) --dist loadfile --durations 60
	$(PYTEST) tests/faults -m quick_fault -n $(LANES) --dist loadfile
	$(CONTAINERS) -m containers

# What a build server runs now and then, and who changes what a long test is about.
integration: setup
	@$(PY) -m tools.warm
	@$(PYTEST) $(SLOW) $(ARGS)

containers: setup
	@tools/docker.sh
	@$(CONTAINERS) tests/integration/objects tests/integration/cli $(ARGS)

compose: setup
	@tools/docker.sh compose
	@tools/compose.sh $(ARGS)

faults: setup
	@$(PYTEST) tests/faults --faults-report=build/faults.json $(ARGS)

demo: setup
	@.venv/bin/halog demo $(ARGS)

features: setup
	@$(PY) -m tools.features

sim: setup
	@$(PY) -m tests.sim.run --seeds $(SEEDS) $(OTHER_SEEDS:%=--also %) --times 7 --processes $(CORES) $(ARGS)

mutants: setup
	@$(PY) -m tests.mutants.run $(ARGS)

bench: setup
	@$(PY) -m benchmarks.run $(ARGS)

bench-peers: setup
	@$(PY) -m benchmarks.peers $(ARGS)

bench-rebalance: setup
	@$(PY) -m benchmarks.rebalance $(ARGS)

# Newest versions that satisfy pyproject.toml, with the hashes of every file of each.
UV := .venv/bin/uv pip compile --quiet --upgrade --generate-hashes --python-version 3.11 \
	--python-platform x86_64-manylinux_2_28 --no-header --no-annotate
lock:
	@test -x .venv/bin/uv || tools/setup.sh
	$(UV) --allow-unsafe requirements/build.in -o requirements/build.lock
	$(UV) pyproject.toml -o requirements/node.lock
	$(UV) pyproject.toml --all-extras -o requirements/dev.lock
	$(UV) pyproject.toml --extra spark -c requirements/dev.lock -o requirements/spark.lock

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

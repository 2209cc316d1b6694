# make demo      the whole path on this machine: no Slurm, Docker, GPU or root needed
# make unit      the fast tests: what needs neither a lab nor a whole set; under a minute
# make test      all tests but the long ones, once, in random order; on Debian as root with a real Slurm and a real Docker engine
# make long      the long and the rare tests: sets with a real torch, podman under fire, 20,000 seeds; an hour
# make faults    the long fault campaign: hundreds of injections on the lab; hours; goes on where it was ended
# make reality   one fault script on the lab and in the simulated world, 30 sets each: do they agree; 50 minutes
# make sim       whole sets with random faults on a virtual clock, checked one by one; SEEDS=N how many (1,000)
# make mutations defects that the project once had, put back one at a time: which of them make sim finds; SEEDS=N of each
# make check     format, lint, types, shell scripts, layers, classes, names, trust (tools/check); nothing is run
# make docs      the documentation site, as plain files in build/docs
# make pictures  docs/pictures: the demo recorded in a terminal, and its report; screens and pages that tests compare; needs Chromium
# make reference the generated pages, completions and man page, from the parsers and the models (tools/reference.py)
# make zipapp    dist/orchestrator.pyz: the command and all it needs in one file, for machines without network
# make lock      write requirements-*.txt anew: the versions that these install, for the zipapp with hashes
# make lab       a real 8-node Slurm and a Docker engine on this machine, to play with; make lab-down removes it
# make clean     remove what these made in the checkout
#
# ARGS goes to the command: make test ARGS="-k score", make demo ARGS="--help". JOBS is how many tests run side by side (one more than processors, as some wait; at most 8).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.SILENT:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
INSTALL := PYTHON=$(BIN)/python tools/install
JOBS = $(shell processors=$$(nproc 2>/dev/null || echo 2); echo $$((processors < 8 ? processors + 1 : 8)))
SEEDS := 1000
SITE := build/docs
PYTEST = $(BIN)/python -m pytest -q --numprocesses $(JOBS) --dist loadgroup

# Tests start hundreds of commands: without byte code each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo unit test long faults reality sim mutations check docs pictures reference zipapp lock lab lab-down clean

help:
	sed -n 's/^# \{0,1\}//p' Makefile | sed '/^$$/q'

demo: $(VENV)/installed
	$(BIN)/orchestrator demo $(ARGS)

test: $(VENV)/tested
	lab/with --late $(PYTEST) $(ARGS)

long: $(VENV)/tested
	$(INSTALL) --editable '.[export]'
	lab/with --late $(PYTEST) -m long $(ARGS)

faults: $(VENV)/tested
	lab/with $(BIN)/python tests/faults/campaign.py $(ARGS)

reality: $(VENV)/tested
	lab/with $(BIN)/python tests/faults/reality.py $(ARGS)

unit: $(VENV)/tested
	$(PYTEST) -m unit $(ARGS)

sim: $(VENV)/tested
	$(BIN)/python tests/simulation/seeded_sets.py --seeds $(SEEDS) $(ARGS)

mutations: $(VENV)/tested
	$(BIN)/python tests/simulation/mutations.py --seeds $(SEEDS) $(ARGS)

check: $(VENV)/tested
	PYTHON=$(BIN)/python tools/check

docs: build/docs-venv/installed
	build/docs-venv/bin/python -m sphinx --fail-on-warning --keep-going --quiet -b html docs $(SITE)
	echo "$(SITE)/index.html"

pictures: $(VENV)/tested build/docs-venv/installed
	$(BIN)/python tools/pictures.py
	GOLDEN=write $(PYTEST) tests/controller/test_tables.py tests/report/test_report_pictures.py tests/docs/test_docs_site.py

reference: $(VENV)/installed
	$(BIN)/python tools/reference.py

zipapp: $(VENV)/installed
	$(BIN)/python tools/zipapp.py dist/orchestrator.pyz

lock: $(VENV)/tested
	PYTHON=$(BIN)/python tools/lock

lab:
	lab/up

lab-down:
	lab/down

clean:
	rm -rf $(VENV) .lab dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# Python 3.10 or newer with venv, 3.11 for tests and checks. On Debian the venv module is a package of its own; without it
# `python3 -m venv` leaves an environment that has a python and no pip.
$(BIN)/pip:
	newest() {
		for floor in 11 10; do
			for python in python3 python3.14 python3.13 python3.12 python3.11 python3.10; do
				if "$$python" -c "import sys; sys.exit(sys.version_info < (3, $$floor))" 2>/dev/null; then
					command -v "$$python"
					return
				fi
			done
		done
		return 1
	}
	install_venv() {
		[ "$$(id -u)" -eq 0 ] && command -v apt-get >/dev/null || return 1
		echo "installing python3-venv" >&2
		apt-get -o DPkg::Lock::Timeout=300 update -qq </dev/null
		DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -qq --yes --no-install-recommends \
			python3 python3-venv </dev/null >/dev/null
	}
	python=$$(newest) || { install_venv && python=$$(newest); } || {
		echo "Python 3.10 or newer is needed, and there is none on PATH. On Debian and Ubuntu:" >&2
		echo "  apt-get install python3 python3-venv" >&2
		exit 1
	}
	"$$python" -c 'import ensurepip' 2>/dev/null || install_venv || {
		echo "$$python has no venv module. On Debian and Ubuntu:" >&2
		echo "  apt-get install python3-venv" >&2
		exit 1
	}
	rm -rf $(VENV)
	echo "making $(VENV)" >&2
	"$$python" -m venv $(VENV)

# Editable, so a change of the sources needs no new installation.
$(VENV)/installed: pyproject.toml | $(BIN)/pip
	echo "installing into $(VENV) ..." >&2
	$(INSTALL) --editable .
	touch $@

# Constraints, not requirements: they say which version, and pyproject.toml what is needed on this Python.
$(VENV)/tested: pyproject.toml requirements-dev.txt | $(BIN)/pip
	"$(BIN)/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
		echo "Tests and checks need Python 3.11 or newer: the versions of requirements-dev.txt do." >&2
		echo "  hint: put one on PATH, rm -rf $(VENV), and repeat" >&2
		exit 1
	}
	echo "installing into $(VENV), with what tests and checks need ..." >&2
	$(INSTALL) --constraint requirements-dev.txt --editable '.[test,check]'
	touch $@ $(VENV)/installed

# An environment of its own: its packages are not those of the tests.
build/docs-venv/installed: requirements-docs.txt | $(BIN)/pip
	echo "installing Sphinx into build/docs-venv ..." >&2
	$(BIN)/python -m venv build/docs-venv
	PYTHON=build/docs-venv/bin/python tools/install --requirement $<
	touch $@

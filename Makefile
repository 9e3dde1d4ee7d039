# Everything a newcomer or CI runs. Each target creates what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := milp models datasets replay
# pytest-xdist workers
WORKERS ?= 2
# How long `make explore` searches
MINUTES ?= 60
# Compiled test and source files are kept: the suite starts hundreds of processes, and each would compile all anew.
test slow explore: export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test test-python test-browser slow explore mutants evidence speed sandbox lowest small check format audit dist docs clean

## demo: replay the bundled data set and write a report of it; evaluate a made-up machine by its log, for its director
demo: $(VENV)/report.stamp
	$(BIN)/bft-replay -Tfwd 120 --out demo-itrOut --force
	@printf 'The report, for any browser: ' && $(BIN)/bft-replay report demo-itrOut --force
	$(BIN)/bft-replay evaluate examples/synthetic-sacct.txt --nodes "cn[01-64]" --tz Europe/Berlin --from 2024-03-04 \
		--to 2024-03-07 --out demo-evaluation

## test: run the test suite, except what `make slow` runs
test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow and not browser"

## test-python: the same with another Python, in an environment of its own: make test-python PYTHON=python3.13
test-python:
	$(MAKE) test VENV=build/python-$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')

## test-browser: open reports in headless Chromium; installs Chromium (Debian, as root), axe-core (npm) and playwright
test-browser: $(VENV)/browser.stamp build/axe/node_modules/axe-core/axe.min.js
	command -v chromium > /dev/null || { apt-get update && apt-get install -y chromium; }
	$(BIN)/python -m pytest tests/browser

## slow: run the slow tests, and property tests with all their examples
slow: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "slow or (hypothesis and not browser)" --hypothesis-profile=all

## explore: search for inputs that break a property test, all of them with new examples each round, until one fails or
## the time is up: make explore MINUTES=60. What fails is an `@example` of its test from then on.
explore: $(VENV)/dev.stamp
	end=$$(($$(date +%s) + 60 * $(MINUTES))); while left=$$((end - $$(date +%s))); [ $$left -gt 0 ]; do \
		timeout -s INT $$left $(BIN)/python -m pytest -q -n $(WORKERS) -m "hypothesis and not browser" -o faulthandler_timeout=0 \
			--hypothesis-profile=explore --hypothesis-seed=$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ') || [ $$? = 124 ] || exit 1; done

## mutants: put small mistakes into engine, exact programme and intake, one at a time; the tests must find out all
mutants: $(VENV)/dev.stamp
	$(BIN)/python tests/mutants/run.py --workers $(WORKERS)

## evidence: run the benchmarks whose tables stand in the pages, and write these; those of more than ten minutes by name:
## make evidence ONLY=benchmarks/beyond.py (benchmarks/README.md)
evidence: $(VENV)/dev.stamp
	$(BIN)/python -m benchmarks.evidence $(ONLY)

## speed: measure what things cost beside the last release, or a commit: make speed AGAINST=COMMIT; says what got slower
speed: $(VENV)/dev.stamp
	$(BIN)/python benchmarks/speed.py --against $(or $(AGAINST),$(shell git describe --tags --abbrev=0 2>/dev/null),$(error \
		No release has a tag yet: make speed AGAINST=COMMIT))

## sandbox: install what slow tests run of other people's programs: Slurm, Grid Engine, OAR and their data bases
## (Debian, as root); tests that miss them are skipped
sandbox:
	for program in slurmctld slurmd slurmdbd munged mariadbd sge_qmaster sge_execd qconf Almighty oarsub oarnodesetting psql ip; do \
		command -v $$program >/dev/null || { echo gridengine-master shared/gridengineconfig boolean false | debconf-set-selections; \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
			slurm-wlm slurmdbd munge mariadb-server gridengine-master gridengine-exec gridengine-client \
			oar-server oar-server-pgsql oar-user oar-user-pgsql oar-node postgresql iproute2; exit $$?; }; done

## lowest: install the lowest versions of all dependencies that pyproject.toml allows, and run the commands of two pages
## there: they print what the pages show
lowest: $(VENV)/dev.stamp
	$(BIN)/uv venv --quiet --clear --python $(PYTHON) build/lowest
	$(BIN)/uv pip install --quiet --python build/lowest --resolution lowest-direct ".[report]"
	rm -rf build/pages && mkdir build/pages && cp docs/tutorial.md docs/own-jobs.md build/pages
	build/lowest/bin/python tests/shown.py build/pages/*.md
	for page in tutorial own-jobs; do diff docs/$$page.md build/pages/$$page.md || exit 1; done

## small: install the small set of packages, requirements-small.txt: it replays what all packages do
small: $(VENV)/dev.stamp
	$(BIN)/uv venv --quiet --clear --python $(PYTHON) build/small
	$(BIN)/uv pip install --quiet --python build/small --no-deps -r requirements-small.txt .
	build/small/bin/bft-replay list backends | grep -q "cbc *available"
	build/small/bin/bft-replay -Tfwd 120 --no-u --out build/small-itrOut --force
	$(BIN)/bft-replay -Tfwd 120 --no-u --backend exact --out build/all-itrOut --force
	for table in jobs allocations; do cmp build/small-itrOut/$$table.parquet build/all-itrOut/$$table.parquet || exit 1; done

## check: linter, formatter, type checker, layers of imports, links of pages
check: $(VENV)/dev.stamp build/typing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	MYPYPATH=build/typing $(BIN)/mypy -p bft
	PYTHONPATH=build/typing $(BIN)/lint-imports --no-cache
	$(BIN)/md-dead-link-check

## format: let ruff rewrite what it can
format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

## audit: licences of all files (REUSE), dangerous calls (Bandit), workflows (zizmor), known vulnerabilities of what we
## depend on (pip-audit)
audit: $(VENV)/release.stamp
	$(BIN)/reuse lint
	$(BIN)/bandit -q -r $(PACKAGES) api -c pyproject.toml
	$(BIN)/zizmor --offline .github
	$(BIN)/pip-audit --progress-spinner off .

## dist: build sdist and wheel, the one from the other, into dist/ and check them
dist: $(VENV)/release.stamp build/typing
	rm -rf dist
	$(BIN)/check-sdist
	$(BIN)/python -m build
	$(BIN)/check-wheel-contents dist/*.whl
	$(BIN)/python -m twine check --strict dist/*

## docs: write the documentation site to docs/_build/html; a warning is an error
docs: $(VENV)/dev.stamp
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "bft-replay needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV) || { echo "Could not make a virtual environment: on Debian, apt install python3-venv"; rm -rf $(VENV); exit 1; }

$(VENV)/core.stamp: pyproject.toml | $(VENV)/bin/python
	@echo 'Installing into $(VENV): 379 MB come down, half of it CBC; docs/install.md has a smaller set'
	$(BIN)/python -m pip install --disable-pip-version-check -e .
	touch $@

$(VENV)/dev.stamp: pyproject.toml | $(VENV)/bin/python
	@echo 'Installing the development tools into $(VENV): some 900 MB come down'
	$(BIN)/python -m pip install --disable-pip-version-check -e '.[dev]'
	touch $@ $(VENV)/core.stamp

$(VENV)/report.stamp: pyproject.toml | $(VENV)/bin/python
	@echo 'Installing into $(VENV): 412 MB come down, half of it CBC; docs/install.md has a smaller set'
	$(BIN)/python -m pip install --disable-pip-version-check -e '.[report]'
	touch $@ $(VENV)/core.stamp

$(VENV)/release.stamp: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --disable-pip-version-check -e '.[release]'
	touch $@

$(VENV)/browser.stamp: pyproject.toml $(VENV)/dev.stamp
	$(BIN)/python -m pip install --disable-pip-version-check -e '.[browser]'
	touch $@

# What checks that pages can be used by all.
build/axe/node_modules/axe-core/axe.min.js: Makefile
	command -v npm > /dev/null || { apt-get update && apt-get install -y npm; }
	npm install --silent --no-save --prefix build/axe axe-core@4.14
	touch $@

# The import package is bft.*, its folders lie at the top level: mypy needs to see it as it is imported.
build/typing: Makefile api
	rm -rf $@ && mkdir -p $@/bft
	for p in $(PACKAGES); do ln -s ../../../$$p $@/bft/$$p; done
	for f in $$(cd api && ls); do ln -s ../../../api/$$f $@/bft/$$f; done

clean:
	rm -rf $(VENV) build dist docs/_build docs/generated *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis \
		demo-itrOut demo-itrOut.html demo-evaluation

# Two commands for a newcomer, `make demo` and `make test`; both set up what they need.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# what the demonstration needs, and what the tests need beside it
DEMO_STAMP := $(VENV)/.installed-demo
STAMP := $(VENV)/.installed
# torch by its exact version, so that nothing else decides which build comes
PINNED = "$$(grep '^torch==' constraints.txt)" -c constraints.txt
INSTALL := $(BIN)/python scripts/install.py
# what is compiled at the first import is kept, also where somebody has asked for the opposite: pip compiles nothing here
export PYTHONDONTWRITEBYTECODE :=
# the rooms beside the library, which a checkout need not have
ROOMS := $(wildcard papers board/standfast_board)
BOARD := $(wildcard board/pyproject.toml)

.PHONY: setup demo test coverage slow card-dry-run bench mutants docs board board-submissions wheel audit lock test-minimum format clean

setup: $(STAMP)
	@echo "next: make demo"

$(DEMO_STAMP): pyproject.toml constraints.txt
	@echo "the demonstration's packages go into $(VENV)"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) $(PINNED) -e .
	touch $@

$(STAMP): $(DEMO_STAMP) $(BOARD)
	@echo "the packages of tests, documentation and benchmarks go into $(VENV)"
	$(INSTALL) $(PINNED) -e '.[dev,docs,peers]' $(if $(BOARD),-e ./board)
	touch $@

demo: $(DEMO_STAMP)
	$(BIN)/standfast demo --out demo
	@echo "open demo/report/index.html"

test: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(if $(ROOMS),$(BIN)/mypy $(ROOMS))
	# once, and not in each of some hundred processes
	$(BIN)/python -m compileall -q src
	$(BIN)/python -m pytest -n auto --dist worksteal

# the lines of src/standfast that the tests reach, without those of other processes; the floor is in pyproject.toml
coverage: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist worksteal --cov --cov-report=term:skip-covered

slow: $(STAMP)
	$(BIN)/python -m pytest -m slow

# a little of what scripts/on_a_card.sh does on a card, here on the CPU
card-dry-run: $(STAMP)
	PYTHON=$(BIN)/python scripts/on_a_card.sh --device cpu --tiny

bench: $(STAMP)
	$(BIN)/python benchmarks/installation/import_time.py
	$(BIN)/python benchmarks/rare_events/compare.py
	$(BIN)/python benchmarks/speed/throughput.py
	$(BIN)/python benchmarks/other_libraries/peers.py
	$(BIN)/python benchmarks/worst_case/searches.py

# small changes of the code, which the tests should notice; their tool is used by nothing else
MUTANTS := build/mutants
mutants: $(STAMP)
	test -x $(MUTANTS)/bin/cosmic-ray || ($(BIN)/python -m venv $(MUTANTS) && \
		$(MUTANTS)/bin/python -m pip install --quiet --disable-pip-version-check cosmic-ray==8.7.0 coverage==7.17.3)
	$(BIN)/python scripts/mutants.py

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open build/site/index.html"

# the board of the submissions that come with it
board: $(STAMP)
	$(BIN)/standfast-board build board/submissions --out build/board

# these submissions again: about ten minutes on an idle core
board-submissions: $(STAMP)
	cd board/studies && for study in *.yaml; do name=$${study%.yaml}; \
		$(CURDIR)/$(BIN)/standfast run $$study --out $(CURDIR)/results/board/$$name --no-report && \
		$(CURDIR)/$(BIN)/standfast-board submit $(CURDIR)/results/board/$$name \
			--out $(CURDIR)/board/submissions/$$name.json.gz --by standfast || exit 1; done

# wheel and sdist, and the board's wheel, with what they hold checked
wheel: $(STAMP)
	rm -rf dist
	$(BIN)/hatchling build
	$(if $(BOARD),cd board && $(CURDIR)/$(BIN)/hatchling build -t wheel -d $(CURDIR)/dist)
	$(BIN)/python scripts/check_wheel.py dist/*.whl dist/*.tar.gz

# known vulnerabilities of the pinned environment, by the advisories of PyPI, and whether the files in the lock are those
# that PyPI has: fails where it cannot be reached
AUDIT := build/audit/bin
$(AUDIT)/uv:
	test -x $(AUDIT)/python || $(PYTHON) -m venv build/audit
	$(AUDIT)/python -m pip install --quiet pip-audit uv

audit: $(AUDIT)/uv
	$(AUDIT)/pip-audit --strict --requirement constraints.txt --no-deps --disable-pip
	$(AUDIT)/python scripts/lock.py --uv $(AUDIT)/uv --check

# the SHA-256 of every published file of the pinned versions; not needed for set-up
lock: $(AUDIT)/uv
	$(AUDIT)/python scripts/lock.py --uv $(AUDIT)/uv

# the lowest versions that pyproject.toml allows, in an environment of their own
MINIMUM := build/minimum
test-minimum: $(MINIMUM)/.installed
	$(MINIMUM)/bin/python -m pytest -p no:cacheprovider -q tests/test_packaging.py tests/test_tensors.py tests/model/test_model.py tests/similarity/test_similarity.py \
		tests/metrics/safari tests/algorithms/rare_events tests/algorithms/searches tests/data/test_data.py \
		tests/study/test_studies.py tests/study/file tests/statistics tests/report/test_report.py tests/report/exports

$(MINIMUM)/.installed: pyproject.toml constraints-minimum.txt
	test -x $(MINIMUM)/bin/python || $(PYTHON) -m venv $(MINIMUM)
	$(MINIMUM)/bin/python -m pip install --quiet "$$(grep '^torch==' constraints-minimum.txt)" -c constraints-minimum.txt
	$(MINIMUM)/bin/python -m pip install --quiet -c constraints-minimum.txt -e '.[export,fast]' \
		captum scipy scikit-image scikit-learn pytest hypothesis hatchling mypy jsonschema
	touch $@

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) demo build dist .mypy_cache .ruff_cache .pytest_cache

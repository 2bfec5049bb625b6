# The Python that makes the environments: 3.11 or newer, and for the book's own pins 3.11.
PYTHON ?= python3
BOOK_PYTHON ?= python3.11

VENV = .venv
PY = $(VENV)/bin/python
TESTS = tests pages/tests
# Those that hold on other packages too: without those of the browser, the set-up and the notebooks' form.
TESTS_OF_THE_ROOMS = $(addprefix tests/,attention models heads pictures checking museum exercises)
# Two processes share the tests; those that share something expensive stay together (pytest.mark.xdist_group).
PYTEST_ARGS ?= --numprocesses=2 --dist=loadgroup
# Tests start without trained models, and leave those of the learner alone.
MODELS = $(VENV)/models
PYTEST = OMP_NUM_THREADS=1 MHA_CACHE="$(CURDIR)/$(MODELS)" $(PY) -m pytest $(PYTEST_ARGS)

# The kernel is the environment's own, whatever kernels the home directory holds.
export JUPYTER_PATH := $(CURDIR)/$(VENV)/share/jupyter
export JUPYTER_PREFER_ENV_PATH := 1
# Hundreds of processes import the same code, and one is enough to compile it.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help lab test notebooks translations site slides pages page-runtime links wheel bench bench-full bench-gpu bench-widgets bench-writing papers quiz nightly \
	research-measures research-births research-head-writes research-packing research-places research-real research-sinks research-next-word research-fresh-texts research-streaming research-repair research-families research-cut-families research-claim-seeds test-research test-classroom mutants weights kept-maps real-models try-real-models lint clean \
	test-browsers test-rounding test-gpu test-second-device test-book-pins test-newest test-elsewhere elsewhere-jax elsewhere-keras elsewhere-kotlin elsewhere-mxnet nbgrader \
	check install release-dry-run
.NOTPARALLEL:

help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

lab: install try-real-models ## open the course in JupyterLab (arguments for it: LAB_ARGS="--port=9999")
	@$(PY) -m jupyterlab --ServerApp.root_dir="$(CURDIR)" \
		--LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb \
		$(if $(filter 0,$(shell id -u)),--allow-root) $(LAB_ARGS)

test: install ## lint, run the everyday tests, compare the notebooks' main lines with their committed outputs
	@$(MAKE) --no-print-directory lint & \
		MHA_EVERYDAY=1 $(MAKE) --no-print-directory check; checked=$$?; \
		wait $$! || { echo "make lint has failed: what it says stands above the tests' result"; exit 1; }; \
		exit $$checked

nightly: ## everything that CI may run: an hour, or in several goes at one commit; green, it writes that into .ci/nightly, to commit
	@test -z "$$(git status --porcelain)" || { echo "make nightly proves a commit: commit or stash what has changed"; exit 1; }
	@.ci/run all
	@git rev-parse HEAD > .ci/nightly

notebooks: install ## execute all notebooks and write their outputs in place
	@$(PY) -m tools.notebooks
	@$(PY) -m tools.address
	@$(PY) -m tools.ways_in
	@$(PY) -m tools.plans
	@$(PY) -m tools.page_section
	@$(MAKE) --no-print-directory translations

translations: install ## bring catalogues to the English of today, and write and run notebooks and pages in other languages
	@$(PY) -m tools.translations update
	@$(PY) -m tools.translations run

site: install ## run all notebooks, and make pages of them, with live pictures, in build/site
	@$(MAKE) --no-print-directory install VENV=.venv-site
	@$(PY) -m tools.site_source build/site-source
	@rm -rf build/site
	@PYTHONPATH="$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
		.venv-site/bin/python -m sphinx -q -W -b html -d build/site-doctrees build/site-source build/site
	@echo "Open build/site/index.html"

# latex2mathml is the site's.
slides: install ## make the lecture's slides of notebook 00, with live pictures and notes, in build/slides
	@$(MAKE) --no-print-directory install VENV=.venv-site
	@PYTHONPATH="$$(.venv-site/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
		$(PY) -m tools.slides build/slides

pages: install ## write each exercise that has a page to build/pages: written and checked in a browser, offline
	@$(PY) -c "from mha_course.exercises import on_a_page; print(*on_a_page.all_pages('build/pages'), sep='\n')"

page-runtime: ## make the page without an exercise, which ships with the library; needs npm and a network
	@"$(PYTHON)" -m pages.runtime

links: install ## ask all addresses that the project cites whether they still answer; needs a network
	@$(MAKE) --no-print-directory install VENV=.venv-site
	@$(PY) -m tools.links

wheel: install ## build both packages, and prove that each notebook runs with them alone: some minutes
	@$(PY) -m tools.try_wheel $(WHEEL_NOTEBOOKS)

release-dry-run: install ## build a release and say what it lacks; no network, nothing is published (TAG=v0.2.0: held to it)
	@$(PY) -m tools.release $(TAG)

bench: install ## compare the layer's speed and memory with its peers, and pruned layers with whole ones
	@$(PY) -m benchmarks

bench-full: install ## the same in all cells, and write the results: half an hour
	@$(PY) -m benchmarks --full

bench-gpu: install ## the layer beside torch's, the bare kernel and d2l's on a GPU, and whether its calls wait; where there is none, says so
	@$(PY) -m benchmarks.gpu

research-measures: install ## hold every measure of a head's importance against the truth, thirty seeds: two hours; goes on where it stopped
	@$(PY) -m research.compare_measures

research-births: install ## see heads come into being with eight seeds: three minutes; seeds that are kept are not run again
	@OMP_NUM_THREADS=1 $(PY) -m research.births

research-head-writes: install ## what the heads of layer 1 write into the output, six seeds: five minutes
	@OMP_NUM_THREADS=1 $(PY) -m research.head_writes

research-packing: install ## train on packed texts with a mask by text and without, five seeds: ten minutes; seeds that are kept are not run again
	@OMP_NUM_THREADS=1 $(PY) -m research.packing

research-places: install ## ask four kinds of places at lengths and with padding never trained on, five seeds: ten minutes; seeds that are kept are not run again
	@OMP_NUM_THREADS=1 $(PY) -m research.places

research-real: install ## measure and cut the heads of SmolLM2, and keep the results: two hours; goes on where it stopped; needs make real-models
	@OMP_NUM_THREADS=1 $(PY) -m research.real_heads

research-sinks: install ## how much weight the language model puts on the first position: one minute; needs make real-models
	@OMP_NUM_THREADS=1 $(PY) -m research.sinks

research-next-word: install ## cut heads of SmolLM2 and see what it says next, on 78 texts: eleven minutes; needs make real-models
	@OMP_NUM_THREADS=1 $(PY) -m research.next_word

research-fresh-texts: install ## hold the claims about SmolLM2 against fresh texts: ten minutes; goes on where it stopped; needs make real-models
	@OMP_NUM_THREADS=1 $(PY) -m research.fresh_texts

research-streaming: install ## which heads of SmolLM2 need to see far back, on fresh texts: forty minutes; goes on where it stopped; needs make real-models
	@$(PY) -m research.streaming

research-repair: install ## train SmolLM2 on without heads of a measure, and of draws: ten minutes of CPU time; goes on where it stopped; needs make real-models
	@OMP_NUM_THREADS=1 $(PY) -m research.repair

research-families: install ## find the heads of every language model of transformers, small and random: one minute
	@OMP_NUM_THREADS=1 $(PY) -m research.found_families

research-cut-families: install ## see, gate, measure, remove, save and load heads of 26 families of transformers and 16 of timm: two minutes
	@OMP_NUM_THREADS=1 $(PY) -m research.cut_families

research-claim-seeds: install ## one claim on ten drawn models, beside the truth by all choices: a quarter of an hour
	@OMP_NUM_THREADS=1 $(PY) -m research.claim_seeds

bench-widgets: install ## what a repaint of the Ring costs in a browser: a minute
	@$(PY) -m benchmarks.widgets

bench-writing: install ## how fast SmolLM2's shapes read and write, whole, pruned and streaming: half an hour; goes on where it stopped
	@OMP_NUM_THREADS=1 $(PY) -m benchmarks.writing

papers: install ## write six questions to answer on paper, and answers with points, to build/papers (SEED=7: other numbers)
	@$(PY) -m classroom.papers $(or $(SEED),1)

quiz: install ## write the quiz bank, made of the notebooks' predictions, to build/quiz.gift, for Moodle and others
	@$(PY) -m classroom.quiz

mutants: install ## break 16 random places of each room, and list those that no quick test notices: an hour; goes on where it stopped
	@OMP_NUM_THREADS=1 $(PY) -m tools.mutants $(MUTANTS_ARGS)

weights: install ## train the models that ship with the library anew, and write them with their figures
	@OMP_NUM_THREADS=1 $(PY) -m tools.weights

kept-maps: install ## write what ships of MiniLM anew: maps of twelve sentences, and one layer; needs make real-models
	@OMP_NUM_THREADS=1 $(PY) -m tools.kept_maps

real-models: install ## install MiniLM and SmolLM2, real models, of 190 MB: where it fails, all else works without
	@$(PY) -m tools.real_models

try-real-models: install
	@$(PY) -m tools.real_models --once || true

lint: install ## check the style of all code, the types of the library, and the translations
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(VENV)/bin/deno fmt --quiet --check
	@$(VENV)/bin/deno lint --quiet
	@$(PY) -m mypy
	@$(PY) -m tools.translations check

test-rounding: install ## run all notebooks as on other processors, three ways: an hour (SEEDS=1 THIRD=0: a ninth of it)
	@$(PY) -m tools.rounding $(if $(SEEDS),--seeds $(SEEDS)) $(if $(THIRD),--third $(THIRD))

clean: ## remove everything that these commands made, the environments too
	rm -rf .venv .venv-book .venv-elsewhere-* .venv-nbgrader .venv-newest .venv-site .mypy_cache .pytest_cache .ruff_cache build
	find . -name __pycache__ -prune -exec rm -rf {} +

test-research: install ## the tests of research/, which no notebook needs
	$(PYTEST) research/tests

test-classroom: nbgrader ## the tests of classroom/: nbgrader grades the exercises, by the commands of notebooks/TEACHING.md
	$(PYTEST) classroom/tests

test-browsers: install ## all live pictures and pages of the site in Firefox and WebKit; make site first
	$(PYTEST) tests/browser/firefox_and_webkit.py

test-gpu: install ## tests of the layer, of models and of heads on a GPU; where there is none, says so
	@$(PY) -c "import sys, torch; sys.exit(not torch.cuda.is_available())" \
		|| { echo "make test-gpu: torch sees no GPU here, so that nothing was tested."; exit 0; }; \
		MHA_DEVICE=cuda $(PYTEST) tests/attention tests/models tests/heads

test-second-device: install ## the same tests on a second device that is pretended on the CPU: they fail where two devices meet
	@MHA_DEVICE=lazy:0 $(PYTEST) tests/attention tests/models tests/heads

test-book-pins: ## test on the packages of environment.yml: d2l with its own pins of 2023
	@$(MAKE) check VENV=.venv-book PYTHON="$(BOOK_PYTHON)" PYTEST_ARGS='$(PYTEST_ARGS) -m "not transformers"' \
		TESTS="$(TESTS_OF_THE_ROOMS) tests/notebooks/test_saved_outputs.py"

test-newest: ## test on the newest release of every package, without the lock, in an environment made anew each time
	@rm -f .venv-newest/installed
	@$(MAKE) check VENV=.venv-newest TESTS="$(TESTS_OF_THE_ROOMS) tests/notebooks/test_saved_outputs.py"

elsewhere-jax: install ## run notebooks/elsewhere/jax.ipynb in an environment of its own, and write it
elsewhere-keras: install ## the same with keras.ipynb
elsewhere-kotlin: install ## the same with kotlin.ipynb; needs Java
elsewhere-mxnet: install ## the same with mxnet.ipynb
elsewhere-jax elsewhere-keras elsewhere-kotlin elsewhere-mxnet:
	@BOOK_PYTHON="$(BOOK_PYTHON)" $(PY) -m tools.elsewhere $(@:elsewhere-%=%)

test-elsewhere: install ## run all notebooks of notebooks/elsewhere, and compare with what is committed
	@BOOK_PYTHON="$(BOOK_PYTHON)" $(PY) -m tools.elsewhere --test

# Its kernel is the course's own environment: the one that nbgrader brings along knows no mha_course.
nbgrader: install ## install nbgrader beside all this: make test-classroom grades the exercises with it
	@$(MAKE) --no-print-directory install VENV=.venv-nbgrader
	@JUPYTER_PATH="$(CURDIR)/.venv-nbgrader/share/jupyter" $(PY) -m ipykernel install --prefix="$(CURDIR)/.venv-nbgrader"
	@echo 'To grade, in each new shell:  export PATH="$(CURDIR)/.venv-nbgrader/bin:$$PATH"'

check: install
	@rm -rf $(MODELS)
	$(PYTEST) $(TESTS)

install:
	@command -v "$(PYTHON)" >/dev/null || { echo 'There is no $(PYTHON) here. This needs Python 3.11 or newer;' \
		'name yours: make lab PYTHON=python3.12, make test-book-pins BOOK_PYTHON=python3.11'; exit 1; }
	@"$(PYTHON)" -m tools.install $(VENV)

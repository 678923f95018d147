# hsparity's commands. Everything starts from a checkout, Python 3.10 or newer, a C compiler and make.
#
#   make env        .venv in the checkout, hsparity installed editable
#   make demo       capture a tiny DeepSeek-V3 with Transformers, vLLM and SGLang, compare, write reports/demo/
#   make check      format, lint, types, and the tests that need no engine
#   make test       everything, on the real engines, which it installs where they are missing
#   make engines    install vLLM, SGLang and speculators into managed environments
#   make bench      the measurements of docs/benchmarks.md (half an hour)
#   make matrix     the wider sweep over engines, models and settings (an hour), the next line, and how often the
#                   diagnosis is right on real divergences and planted faults (two hours; captures/accuracy is kept)
#   make confusion  every known fault on recorded streams, and which cause is named first (ten minutes)
#   make golden     rewrite the expected reports of tests/golden; the diff is the review
#   make specimens  rebuild the worked reports in reports/
#   make docs       rewrite the pages of docs/findings from the causes, and docs/schema from the records
#   make drafts     train the small EAGLE-3 heads for SmolLM2 into the cache (half an hour; tools/README.md)
#   make recorded   rebuild the captures that `hsparity demo` ships with, from the engines
#   make clean      remove what the commands above made in the checkout

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready
ENGINES := vllm sglang speculators
# Test by test to whichever worker is free: captures that tests share are made once, by lock.
TWO_AT_ONCE := -n 2 --dist loadgroup

# The models are local; a hub that cannot be reached must not cost a timeout.
export HF_HUB_OFFLINE := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help env check lint test demo engines chromium bench matrix confusion golden specimens docs drafts recorded clean

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | sed '/^The models/,$$d'

env: $(READY)

# The stamp holds the lock: a second `make env` costs nothing, a changed lock builds the environment again.
$(READY): requirements/dev.lock requirements/axe.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "no python3 found; set PYTHON" >&2; exit 1; }
	@echo "== .venv with $(PYTHON) (about a minute)" >&2
	"$(PYTHON)" -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -r requirements/dev.lock
	$(BIN)/python -m pip install --quiet --no-deps -r requirements/axe.lock
	$(BIN)/python -m pip install --quiet --no-deps -e .
	@touch $@

engines: env
	$(BIN)/hsparity engines install $(ENGINES)

# The HTML report's tests drive a real browser; CHROME names one that is already there.
chromium:
	@command -v "$${CHROME:-chromium}" >/dev/null || command -v chromium-browser >/dev/null \
	  || command -v google-chrome >/dev/null || command -v google-chrome-stable >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "== installing chromium" >&2; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; \
	  else echo "error: the report tests need chromium: install it, or set CHROME" >&2; exit 1; fi; }

lint: env
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

check: lint chromium
	$(BIN)/python -m pytest $(TWO_AT_ONCE) -m "not engine"

# One pytest run for everything, so that its closing line says it all. CI: what a test needs and does not find fails it.
test: lint chromium engines
	CI=true $(BIN)/python -m pytest $(TWO_AT_ONCE) --durations=40

demo: env
	$(BIN)/hsparity demo --live --output reports/demo

bench: engines chromium
	$(BIN)/python benchmarks/bench_startup.py --write docs/benchmarks.md
	$(BIN)/python benchmarks/bench_compare.py --write docs/benchmarks.md
	$(BIN)/python benchmarks/bench_solve.py --write docs/benchmarks.md
	$(BIN)/python benchmarks/bench_capture.py --write docs/benchmarks.md
	$(BIN)/python benchmarks/bench_report.py --write docs/benchmarks.md

matrix: engines confusion
	$(BIN)/python -m tests.matrix docs/matrix.md
	$(BIN)/python -m tests.accuracy docs/accuracy.md
	@cat docs/accuracy.md

# Every fault of tests/causes on recorded streams against the cause that is named first; no engine runs.
confusion: env
	$(BIN)/python -m tests.causes.matrix docs/confusion.md
	@cat docs/confusion.md

golden: env
	HSPARITY_WRITE_GOLDEN=1 $(BIN)/python -m pytest -q tests/golden

specimens: env
	$(BIN)/python -m reports.damaged
	$(BIN)/python -m reports.build

docs: env
	$(BIN)/python -m hsparity.explain.pages
	$(BIN)/python -m hsparity.report.schema

# One head travels with the repository; the others, and the text they are trained on, are made here.
drafts: env
	$(BIN)/python -m tools.draft_text --threads 2
	for head in right layer-off unnormed sensitive late normed-slot; do $(BIN)/python -m tools.train_draft $$head; done
	$(BIN)/python -m tools.evaluate_draft "$${XDG_CACHE_HOME:-$$HOME/.cache}"/hsparity/drafts/{right,layer-off,unnormed}

recorded: engines
	$(BIN)/python -m hsparity.demo.record

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache reports/demo captures
	find hsparity probes tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

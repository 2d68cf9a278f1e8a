# What a person types: `make demo`, `make test`, `make check`. `make help` lists all.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip --disable-pip-version-check --quiet
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help demo test test-nightly test-install test-clients test-real test-gpu check contract docs format clean

help:  ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The set-up runs again only when what it installs from has changed.
$(VENV)/.installed: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(VENV)/.installed  ## install, then stream a story from the bundled model
	@$(BIN)/gencli run --seed 7 --top-p 0.9 "Once upon a time"
	@printf '%s\n' '' 'Next, try:' \
	  '  $(BIN)/gencli run -t 0.8 --top-p 0.9 --ban fox --show-chain' \
	  '  $(BIN)/gencli run --chat "Tell me a story about a brave fox."' \
	  '  $(BIN)/gencli run --model PATH --top-p 0.9 --stop "\n\n" "Your prompt"'

# Three tiers by folder: tests/ (fast), tests/slow/, tests/nightly/; what installs the package is in tests/install/.
# Whatever the shell says, bytecode is kept: processes of tests and later runs compile nothing again.
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test: $(VENV)/.installed-dev  ## the suite: the fast and the slow tests, but for those of check; FAST=1: the fast ones, for work
	$(PYTEST) --ignore=tests/test_architecture.py $(if $(FAST),--ignore=tests/slow)

test-nightly: $(VENV)/.installed-dev  ## what takes hours: all pairs, architectures, statistics; SHARD=k/N for a part
	SHARD=$(SHARD) $(PYTEST) tests/nightly

test-install: $(VENV)/.installed-dev  ## builds and installs: the wheel, the sdist, the extras
	$(PYTEST) tests/install

# Clients have an environment of their own, which sees the packages of the project's behind its own.
CLIENTS := .venv-clients
PURELIB := python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
$(CLIENTS)/.installed: tests/clients/requirements.txt $(VENV)/.installed-dev
	@test -x $(CLIENTS)/bin/python || $(BIN)/python -m venv $(CLIENTS)
	@echo "import site; site.addsitedir('$$($(BIN)/$(PURELIB))')" > "$$($(CLIENTS)/bin/$(PURELIB))/project.pth"
	$(CLIENTS)/bin/pip --disable-pip-version-check --quiet install --no-deps -r tests/clients/requirements.txt
	@touch $@

# Where the models cannot be fetched, CI stops here; elsewhere the tests say that they are skipped.
FETCH_MODELS = $(BIN)/python -m tests.real.models || test "$(CI)" != true

test-clients: $(CLIENTS)/.installed  ## ten clients of others ask a running server, on a real chat model
	$(FETCH_MODELS)
	PYTHONDONTWRITEBYTECODE= $(CLIENTS)/bin/python -m pytest -n $(WORKERS) --dist worksteal tests/clients

# Chromium comes from Debian where it can be installed; the models are fetched once, into a cache outside of the repository.
test-real: $(VENV)/.installed-dev  ## texts, quality and the page on two real models, which are fetched; FULL=1 for more
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get -qq install -y chromium >/dev/null; } || true
	$(FETCH_MODELS)
	$(PYTEST) tests/real

# Kernels run on the card against their references, with the cases of their other tests.
test-gpu: $(VENV)/.installed-dev  ## what holds on a CUDA card, in minutes; skipped where there is none
	@$(BIN)/python -c 'import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else "There is no CUDA device: all is skipped.")'
	GENCLI_KERNELS=cuda $(BIN)/python -m pytest -m gpu

check: $(VENV)/.installed-dev  ## format, lint, types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_architecture.py

# In minutes. The commit is that of scripts/contract-base; docs/contributing/contract-changes.md lists wanted differences.
contract: $(VENV)/.installed-dev  ## whether this tree behaves, byte for byte, as a base commit does
	$(BIN)/python scripts/contract.py $(if $(NO_CACHE),--no-cache) $(PARTS)

# The site has an environment of its own: the project needs none of its packages.
DOCS := .venv-docs
$(DOCS)/.installed: Makefile
	@test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/pip --disable-pip-version-check --quiet install 'mkdocs-material>=9,<10'
	@touch $@

docs: $(DOCS)/.installed  ## the site of docs/, into site/; a broken link or anchor fails
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict --quiet
	@echo "The site is site/index.html."

format: $(VENV)/.installed-dev  ## rewrite the code as ruff wants it
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) $(CLIENTS) $(DOCS) site .mypy_cache .ruff_cache .pytest_cache .hypothesis

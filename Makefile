# `make demo` and `make test` each work alone on a machine with nothing but Python 3.11 and make.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test test-slow lint bench bench-live bench-llamacpp bench-rewrite bench-peers bench-serve clean

demo: $(READY)
	$(BIN)/specedit rewrite examples/temperature.py --compare --dtype float32 \
		--instruction "Rename the function describe to label."

test: $(READY)
	$(BIN)/pytest

test-slow: $(READY)
	$(BIN)/pytest -m slow

# An editable install hides specedit.proposers from type checkers, so they read an ordinary one.
lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf build
	$(BIN)/pip install --quiet --no-deps --target build/lint .
	cd build/lint && ../../$(BIN)/mypy --config-file ../../pyproject.toml -p specedit

bench: $(READY)
	$(BIN)/python bench/count.py

bench-live: $(READY)
	$(BIN)/python bench/replay.py
	$(BIN)/python bench/markdown.py

bench-rewrite: $(READY)
	$(BIN)/python bench/rewrite.py --dtype float32 --max-tokens 200
	$(BIN)/python bench/markdown.py

bench-peers: $(READY)
	$(BIN)/python bench/peers/run.py
	$(BIN)/python bench/markdown.py

# Builds llama-cpp-python, which takes ten minutes.
bench-llamacpp: $(READY)
	$(BIN)/pip install --quiet -c constraints.txt -e '.[llamacpp]'
	$(BIN)/python bench/llamacpp.py

bench-serve: $(READY)
	$(BIN)/python bench/serve.py
	$(BIN)/python bench/markdown.py

clean:
	rm -rf .venv build

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

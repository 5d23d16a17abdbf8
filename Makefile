# make demo: the main job on a simulated host. make test: every check. The rest are their parts.
.PHONY: setup demo test lint unit integration molecule bench docs clean

setup:
	@scripts/setup

demo: setup
	@scripts/demo

test:
	@scripts/setup dev
	@scripts/test

lint:
	@scripts/setup dev
	@scripts/lint

unit integration:
	@scripts/setup dev
	@.venv/bin/python -m pytest tests/$@

# make molecule SCENARIO=default for one
molecule:
	@scripts/setup dev
	@scripts/molecule $(SCENARIO)

bench:
	@scripts/setup dev
	@scripts/bench

# what is generated: docs/dialects.md and roles/*/README.md
docs:
	@scripts/setup
	@.venv/bin/python scripts/docs

clean:
	@scripts/clean

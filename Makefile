# What a person types; the work is in tools/*.sh.
.PHONY: run test check clean

run: # start the server; HOST, PORT, CONFIG and PYTHON are respected
	@exec tools/run.sh

test: # fetch what the tests need, run all of them
	@exec tools/test.sh

check: # format, lint, types
	@exec tools/check.sh

clean: # remove what these made here; the models stay in their cache
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage dist

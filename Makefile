# What a person types; the work is in tools/*.sh.
.PHONY: run test test-omni test-vllm bench-turns bench-peers bench-load check clean

run: # start the server; HOST, PORT, CONFIG and PYTHON are respected
	@exec tools/run.sh

test: # fetch what the tests need, run all of them
	@exec tools/test.sh

test-omni: # the whole chain with a tiny Qwen3-Omni in torch, in an environment of its own
	@exec tools/test-omni.sh

test-vllm: # our client against mainline vLLM on the CPU, in an environment of its own
	@exec tools/test-vllm.sh

bench-turns: # how soon the assistant starts, stops and yields, over loopback calls; its last line is JSON
	@exec tools/bench-turns.sh

bench-peers: # the same callers against the peers, in environments of their own; its last line is JSON
	@exec tools/bench-peers.sh

bench-load: # calls of libwebrtc until a core is full, both media backends; its last line is JSON
	@exec tools/bench-load.sh

check: # format, lint, types
	@exec tools/check.sh

clean: # remove what these made here; the models stay in their cache
	rm -rf .venv .venv-omni .venv-vllm .venv-peers .venv-load load-report .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage dist

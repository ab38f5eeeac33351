"""A tiny Qwen3-Omni behind vLLM-Omni's contract, and tests of all of ours with it (`make test-omni`)."""

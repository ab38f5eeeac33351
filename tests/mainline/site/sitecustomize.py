"""Loaded by every Python of the server, its model inspector too: mends the import of torchvision."""

import sys
from importlib.machinery import ModuleSpec


class _BeforeTorchvision:
    """Finds no module; it only sees which one is looked for."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name == "torchvision":
            sys.meta_path.remove(self)
            from omni.torchvision_ops import declare_missing_ops

            declare_missing_ops()
        return None


sys.meta_path.insert(0, _BeforeTorchvision())

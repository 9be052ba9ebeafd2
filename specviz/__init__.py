"""SpecViz: speculative cascades, exact, fast, and visible token by token.

The names in `__all__` are public. Each is imported on first use, so `import specviz` does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specviz.core.method import Method as Method
    from specviz.core.methods import METHODS as METHODS
    from specviz.core.methods import register_method as register_method
    from specviz.engine.pair import load_pair as load_pair
    from specviz.engine.pair import pair_from_models as pair_from_models
    from specviz.integrations.transformers import cascade_generate as cascade_generate
    from specviz.schema.settings import Request as Request
    from specviz.schema.trace import Run as Run

__version__ = "0.1.0"

_MODULES = {
    "METHODS": "specviz.core.methods",
    "Method": "specviz.core.method",
    "Request": "specviz.schema.settings",
    "Run": "specviz.schema.trace",
    "cascade_generate": "specviz.integrations.transformers",
    "load_pair": "specviz.engine.pair",
    "pair_from_models": "specviz.engine.pair",
    "register_method": "specviz.core.methods",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    """Import a public name from the module that defines it (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""SpecViz: speculative cascades, exact, fast, and visible token by token."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from specviz.integrations.transformers import cascade_generate as cascade_generate


def __getattr__(name: str) -> Any:
    """`cascade_generate`, loaded when first asked for: it brings torch and transformers."""
    if name != "cascade_generate":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from specviz.integrations.transformers import cascade_generate

    return cascade_generate

"""The commands `methods` and `pairs`."""

from __future__ import annotations

from specviz.cli.terminal import print_table


def methods() -> int:
    """List the methods, and what each does."""
    from specviz.core.methods import METHODS

    rows = [("method", "what it does", "rule", "lenience", "default")]
    for method in METHODS.values():
        low, high = method.offered_range
        lenience = f"{low:g} … {high:g}" if method.has_lenience else "none"
        default = f"{method.default_lenience:g}" if method.has_lenience else ""
        rows.append((method.name, method.label, method.formula, lenience, default))
    print_table(rows)
    return 0


def pairs() -> int:
    """List the model pairs: sizes, source, whether they can be used now."""
    from specviz.models.availability import describe_pairs  # slow to import

    rows = [("pair", "drafter → verifier", "parameters", "size", "source", "cached", "usable now")]
    for pair in describe_pairs():
        models = f"{pair.spec.drafter_name} → {pair.spec.verifier_name}"
        cached = "yes" if pair.cached else "no"
        usable = ("yes" if pair.usable else "no") + (f": {pair.note}" if pair.note else "")
        size = f"{pair.size_gb:.1f} GB"
        rows.append((pair.spec.key, models, pair.parameters, size, pair.spec.origin, cached, usable))
    print_table(rows)
    return 0

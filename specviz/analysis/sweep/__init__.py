"""The trade-off of quality and cost: what a pair's methods come to over their lenience ranges, with intervals."""

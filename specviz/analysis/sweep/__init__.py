"""The trade-off between quality and cost: measures a pair's methods over their lenience ranges, with intervals."""

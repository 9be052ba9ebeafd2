"""Serves many visitors on one machine: loaded pairs, shared engines, limits, statistics and logs."""

"""Distilling a drafter from its verifier's own texts."""

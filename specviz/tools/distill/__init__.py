"""Distilling a drafter from a verifier's own texts. See `job`, where it begins."""

"""Distillation: a drafter is trained on texts that its verifier writes."""

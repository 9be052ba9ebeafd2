"""Lessons for a projector: Markdown texts, with pictures and numbers from recorded runs and the recorded sweep.

Draws nothing and knows no page. docs/lessons.md describes the files.
"""

"""Lessons for a projector: Markdown texts, with pictures and numbers from recorded runs and the recorded sweep.

Contains no drawing and does not know the page. docs/lessons.md describes the files.
"""

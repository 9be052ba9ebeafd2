"""Lessons: what a teacher projects, as data. Files of mechanics and of words are read, checked and filled with recorded numbers.

Knows recorded runs, the recorded sweep and the methods; knows no page, and draws nothing. The format is in docs/lessons.md.
"""

"""The page: one Gradio app. Knows requests, methods and traces; knows no torch."""

from specviz.compat.gradio_import import lighten_gradio

lighten_gradio()  # here, because whatever part of the page is imported first, gradio comes after

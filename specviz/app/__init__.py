"""The page: one Gradio app. Knows requests, methods and traces; knows no torch."""

from specviz.compat.gradio_documentation import make_no_documentation

make_no_documentation()  # here, because whatever part of the page is imported first, gradio comes after

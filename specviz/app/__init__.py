"""The page: one Gradio app. Knows requests, methods and traces; knows no torch."""

from specviz.compat.gradio_stubs import write_no_stubs

write_no_stubs()  # here, because whatever part of the page is imported first, gradio comes after

"""The page: one Gradio app. Knows requests, methods and traces; knows no torch."""

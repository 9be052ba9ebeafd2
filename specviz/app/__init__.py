"""The page: one Gradio app. Handles requests, methods and traces; does not import torch."""

"""The page's own components, each a `gr.HTML` whose DOM its script owns."""

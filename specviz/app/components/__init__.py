"""The page's own components. Each is a `gr.HTML` whose script owns its DOM."""

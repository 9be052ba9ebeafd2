"""The shell: one module a command; the only place that composes tools with figures of the page."""

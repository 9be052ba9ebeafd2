"""The load test: many visitors of a running server, each text compared with the same request asked alone."""

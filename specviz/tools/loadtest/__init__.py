"""The load test: simulated users send requests to a running server; each text must equal the text of the same request sent alone."""

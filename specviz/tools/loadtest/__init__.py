"""The load test: simulated users of a running server, each text compared with the one that its request gets alone."""

"""The audit: engines draw first tokens after a prompt; their counts are compared with the enumerated law. Start reading in `auditing`."""

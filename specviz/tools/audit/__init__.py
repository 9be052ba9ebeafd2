"""The audit: engines draw the first tokens after a prompt, and their counts are held to the enumerated law. Start reading in `auditing`."""

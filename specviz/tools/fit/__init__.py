"""Whether drafting pays on this machine, for a verifier and one or several drafters. Start reading at `measuring`."""

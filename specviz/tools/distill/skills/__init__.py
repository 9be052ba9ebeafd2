"""Questions with known answers, from which a drafter learns what its verifier is bad at."""

"""Questions with known answers, which teach a drafter skills that its verifier lacks."""

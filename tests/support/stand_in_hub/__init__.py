"""A stand-in for the model hub: a local server with tiny repositories, two for each architecture of the registry.

`StandInHub` serves, and plays the faults of a real hub; `repositories` says how each repository is made and whence its traits are;
`python -m tests.support.stand_in_hub.shell` is SpecViz's own shell, told the sizes of these models.
"""

from tests.support.stand_in_hub.server import Answer, BreakOff, Slow, StandInHub

__all__ = ["Answer", "BreakOff", "Slow", "StandInHub"]

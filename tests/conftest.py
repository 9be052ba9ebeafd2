"""For all tests: threads that do not spin (see app.py), set before anything imports torch."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

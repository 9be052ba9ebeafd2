"""For all tests, before anything is imported: threads that do not spin (see specviz/app/server.py), and all pairs on offer."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("SPECVIZ_PAIRS_OFFERED", "all")

"""What SpecViz needs of transformers' attention that is public in its module and in no documented one.

Apart from `compat.transformers` because it brings transformers' modelling code and torch's compiler, two seconds of imports that fused
passes do without. Covered by tests/unit/compat/test_transformers.py likewise.

- sdpa_attention_forward: transformers' own attention, to which ours falls back for masks that are not ours.
- sdpa_mask: the masks of that attention, registered for ours as well.
"""

from __future__ import annotations

from transformers.integrations.sdpa_attention import sdpa_attention_forward as sdpa_attention_forward
from transformers.masking_utils import sdpa_mask as sdpa_mask

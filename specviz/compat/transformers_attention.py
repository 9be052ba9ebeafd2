"""transformers' own attention and masks, which are undocumented. Our attention falls back to them for masks that we did not make.

Not in `compat.transformers`: these imports load modelling code and torch's compiler, which takes two seconds; fused passes need neither.
"""

from __future__ import annotations

from transformers.integrations.sdpa_attention import sdpa_attention_forward as sdpa_attention_forward
from transformers.masking_utils import sdpa_mask as sdpa_mask

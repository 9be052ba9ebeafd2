"""transformers' own attention and its masks, undocumented: ours falls back to them for masks that are not ours.

Apart from `compat.transformers` because they bring modelling code and torch's compiler, two seconds of imports that fused passes do without.
"""

from __future__ import annotations

from transformers.integrations.sdpa_attention import sdpa_attention_forward as sdpa_attention_forward
from transformers.masking_utils import sdpa_mask as sdpa_mask

"""Model pairs: which there are, how they are loaded, and the tokenizer they share."""

from specviz.compat.transformers_import import keep_list_of_models

keep_list_of_models()  # here, because whatever part of it is imported first, transformers comes after

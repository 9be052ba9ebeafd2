"""lm-evaluation-harness: offers a pair and a method as a model, and takes tasks as the items of a sweep."""

from specviz.errors import SpecvizError

try:
    import lm_eval.api.model  # noqa: F401
except ImportError as error:
    raise SpecvizError(
        "This needs lm-evaluation-harness, which is not installed: pip install lm-eval."
    ) from error

from specviz.integrations.lm_eval.model import HarnessModel
from specviz.integrations.lm_eval.tasks import SOURCE, TaskItems, load_tasks

__all__ = ["SOURCE", "HarnessModel", "TaskItems", "load_tasks"]

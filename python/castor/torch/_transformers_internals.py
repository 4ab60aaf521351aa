# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""What `castor.torch` uses of transformers and transformers does not promise: each part with its use, and what is done where a transformers lacks the part.

No other file of `castor.torch` names such a part. `castor.torch` does without transformers: the parts are sought only for a model of transformers'. Where
one part is missing, `conversion()` is None, and `castor.load_weights` takes tensors by the model's own names alone. The parts are those of 5.24.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, NamedTuple

# Each part, and its use.
PARTS = {
    "transformers.modeling_utils:PreTrainedModel": "models whose files transformers converts",
    "transformers.conversion_mapping:get_model_conversion_mapping": "the renamings and operations of a family of models",
    "transformers.core_model_loading:WeightRenaming": "telling renamings from operations",
    "transformers.core_model_loading:WeightConverter": "operations on a parameter's parts, and their order",
    "transformers.core_model_loading:rename_source_key": "the model's name of a tensor in a file",
    "transformers.core_model_loading:dot_natural_key": "the order of parts, such as experts",
}


class Conversion(NamedTuple):
    """transformers' own conversion of files, part by part."""

    Model: Any
    mapping: Any  # (model) -> renamings and converters
    Renaming: Any
    Converter: Any
    rename: Any  # (name, renamings, converters, prefix, the model's names) -> the model's name, and the pattern of a converter
    order: Any  # (name) -> a key to sort by


def conversion() -> Conversion | None:
    """The parts, where a script has imported a transformers that has all of them. None otherwise."""
    if "transformers" not in sys.modules:  # so no model is of transformers'
        return None
    found = []
    for path in PARTS:
        module, _, name = path.partition(":")
        try:
            found.append(getattr(importlib.import_module(module), name))
        except (ImportError, AttributeError):
            return None
    return Conversion(*found)


def lacks_conversion(model: Any) -> bool:
    """Whether a model is of a transformers, 5.0 or later, that holds models under other names than files, and that lacks a part of the conversion."""
    transformers = sys.modules.get("transformers")
    if transformers is None or int(transformers.__version__.partition(".")[0]) < 5 or conversion() is not None:
        return False
    return any(kind.__module__.partition(".")[0] == "transformers" for kind in type(model).__mro__)

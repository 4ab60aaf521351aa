# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Asks the installed Transformers library which parameters the model of a config.json registers.

The config is read from the standard input, and the answer is lines of fields with tabs between them:

    list <TAB> VERSION <TAB> CLASS <TAB> PREFIX       then `tied NAME TO` for each, an empty line, and `NAME D0,D1 F32` for each parameter
    unknown <TAB> VERSION                             then a model_type that the library knows, a line each
    refused <TAB> VERSION <TAB> REASON
    missing <TAB> PACKAGE                             is not installed

The config is a stranger's. Its own code is never run, nothing is fetched, and the model is built on the meta device, which holds no values.
"""

import sys

# A folder of models may hold a torch.py: python -c looks for modules where it was started.
sys.path[:] = [folder for folder in sys.path if folder]

import json  # noqa: E402
import os  # noqa: E402
import resource  # noqa: E402
import warnings  # noqa: E402

# Of memory: sizes in a config may be anything, and not all that is made of them is on the meta device.
MOST_BYTES = 16 << 30
# Of an exception's text.
MOST_CHARACTERS = 400

# What leads to code or files of others, or packs weights.
IGNORED_KEYS = {
    "_attn_implementation",
    "_attn_implementation_internal",
    "_experts_implementation",
    "_name_or_path",
    "attn_implementation",
    "auto_map",
    "experts_implementation",
    "quantization_config",
    "trust_remote_code",
    "use_kernels",
}

# Without an architecture, or with one that the library has not: what a model is pretrained as comes first, and its bare form after others.
MAPPINGS = [
    "MODEL_FOR_PRETRAINING_MAPPING",
    "MODEL_FOR_CAUSAL_LM_MAPPING",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING",
    "MODEL_FOR_MASKED_LM_MAPPING",
    "MODEL_MAPPING",
]


class Refused(Exception):
    """There is no such model here, and the text is why."""


def cleaned(value):
    """The same config without IGNORED_KEYS, in parts of the model too, and with infinity where the library has written it as JSON can."""
    if isinstance(value, list):
        return [cleaned(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"__float__"}:
        return float(value["__float__"])
    kept = {key: cleaned(item) for key, item in value.items() if key not in IGNORED_KEYS}
    if "use_pretrained_backbone" in kept:
        kept["use_pretrained_backbone"] = False
    return kept


def config_of(settings):
    """The library's config for what a config.json says."""
    from transformers import CONFIG_MAPPING

    return CONFIG_MAPPING[settings["model_type"]].from_dict(cleaned(settings))


def is_for(made, config):
    """Whether a class makes a model of the whole config: some make one of its language part."""
    import transformers

    if not isinstance(made, type) or not issubclass(made, transformers.PreTrainedModel):
        return False
    return made.config_class is not None and isinstance(config, made.config_class)


def named_class(config, settings):
    """The class that the config names, where the library has it for such a config."""
    import transformers

    names = settings.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    found = getattr(transformers, name, None) if isinstance(name, str) else None
    return found if is_for(found, config) else None


def usual_class(config):
    """The class that such a config is for, where the config names none."""
    from transformers.models.auto import modeling_auto

    others = [name for name in vars(modeling_auto) if name.startswith("MODEL_FOR_") and name.endswith("_MAPPING")]
    for name in MAPPINGS + others:
        found = getattr(modeling_auto, name, {}).get(type(config), None)
        # Several classes may be for one config; the first is the usual one.
        found = found[0] if isinstance(found, (list, tuple)) and found else found
        if is_for(found, config):
            return found
    raise Refused(f"it has a config of {type(config).__name__} and no model for it")


def build(settings):
    """The model, without values, its shared parameters shared."""
    import torch

    config = config_of(settings)
    made = named_class(config, settings) or usual_class(config)
    with torch.device("meta"):
        model = made(config)
    model.tie_weights()
    return model


def lines_of(model):
    """What follows the first line of a `list`: names that share a parameter, then parameters in the order of their registration."""
    first = {}
    tied = []
    parameters = []
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if "\t" in name or "\n" in name:
            raise Refused(f"a parameter is called {name!r}")
        if id(parameter) in first:
            tied.append(f"tied\t{name}\t{first[id(parameter)]}")
            continue
        first[id(parameter)] = name
        parameters.append(f"{name}\t{','.join(map(str, parameter.shape))}\tF32")
    return [*tied, "", *parameters]


def answer(settings):
    """The answer to a config, of lines."""
    import transformers
    from transformers import CONFIG_MAPPING

    version = transformers.__version__
    try:
        if settings["model_type"] not in CONFIG_MAPPING:
            if "auto_map" in settings:
                raise Refused("the model's code is its own (auto_map), and Castor runs no code of models")
            return [f"unknown\t{version}", *CONFIG_MAPPING.keys()]
        model = build(settings)
        prefix = model.base_model_prefix
        prefix = f"{prefix}." if prefix and hasattr(model, prefix) else ""
        return [f"list\t{version}\t{type(model).__name__}\t{prefix}", *lines_of(model)]
    except Refused as error:
        reason = str(error)
    except Exception as error:  # Whatever a library raises for a config that makes no model.
        reason = f"{type(error).__name__}: {error}"
    return [f"refused\t{version}\t{' '.join(reason.split())[:MOST_CHARACTERS]}"]


def main():
    # What libraries print is no part of the answer.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", CUDA_VISIBLE_DEVICES="")
    warnings.simplefilter("ignore")
    most = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES if most == resource.RLIM_INFINITY else min(MOST_BYTES, most), most))
    settings = json.load(sys.stdin)
    for package in ("torch", "transformers"):
        try:
            __import__(package)
        except ModuleNotFoundError as error:
            out.write(f"missing\t{error.name or package}\n")
            return
    out.write("".join(line + "\n" for line in answer(settings)))
    out.flush()


if __name__ == "__main__":
    main()

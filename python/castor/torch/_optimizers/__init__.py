# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""How parameters are updated: by Castor's own Adam, AdamW and SGD, or by any other optimizer of torch's kind.

`rule_for` of _choice.py gives what a wrapped model's optimizer does its work by. Begin with _rule.py, which says what both have in common.
"""

# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""Castor: training models that do not fit, under hard memory budgets.

``castor.torch`` wraps a PyTorch model and its optimizer. This package by itself needs neither PyTorch nor NumPy.
"""

from castor._plan import Plan, PlanChange, PlannedTier, Simulation, plan, simulate
from castor._report import Proposal, Report, report
from castor._search import ChunkChoice, SearchResult, search
from castor.errors import (
    Aborted,
    CastorError,
    DataLoss,
    DoesNotFit,
    FailedPrecondition,
    InternalError,
    InvalidArgument,
    IoError,
    Malformed,
    StoppedEarly,
    TierFull,
    Unavailable,
)
from castor.sizes import format_size, parse_size

__all__ = [
    "Aborted",
    "CastorError",
    "ChunkChoice",
    "DataLoss",
    "DoesNotFit",
    "FailedPrecondition",
    "InternalError",
    "InvalidArgument",
    "IoError",
    "Malformed",
    "Plan",
    "PlanChange",
    "PlannedTier",
    "Proposal",
    "Report",
    "SearchResult",
    "Simulation",
    "StoppedEarly",
    "TierFull",
    "Unavailable",
    "format_size",
    "parse_size",
    "plan",
    "report",
    "search",
    "simulate",
]

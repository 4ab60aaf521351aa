# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""The public doors of the C++ library: what a program outside this repository may depend on and include.

Their targets are visible to everyone. @castor//:engine is all of them, and an installed Castor::engine has their headers, with what those
include.
"""

ENGINE_DOORS = [
    "//chunk",
    "//chunk:chunk_size_search",
    "//chunk:layout_file",
    "//chunk/base",
    "//collectives:communicator",
    "//collectives:in_process_communicator",
    "//collectives:zero_config",
    "//collectives:zero_engine",
    "//collectives:zero_options",
    "//collectives/callbacks",
    "//offload",
    "//offload:memory_manager",
    "//offload/kernels:optimizer_options",
    "//offload/nvme",
    "//offload/record",
    "//placement",
]

# Ranks that are processes of MPI, or GPUs, need more of a machine than the engine does, so they are asked for one by one.
HARDWARE_DOORS = [
    "//collectives/mpi",
    "//collectives/nccl",
    "//offload/cuda",
    "//offload/cuda:cuda_calls",
    "//offload/cuda:cuda_runtime_calls",
]

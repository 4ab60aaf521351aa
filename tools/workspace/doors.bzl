# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""The public doors of the C++ library: what a program outside this repository may depend on and include.

Their targets are visible to everyone. @castor//:engine is all of them, and an installed Castor::engine has their headers, with what those
include.
"""

ENGINE_DOORS = [
    "//chunk:chunk_layout",
    "//chunk:chunk_size_search",
    "//chunk:layout_file",
    "//chunk:param_spec",
    "//chunk/base:clock",
    "//chunk/base:dtype",
    "//chunk/base:ids",
    "//chunk/base:log",
    "//chunk/base:status",
    "//chunk/base:units",
    "//chunk/base:version",
    "//collectives:communicator",
    "//collectives:custom_update",
    "//collectives:engine_results",
    "//collectives:in_process_communicator",
    "//collectives:loss_scaler",
    "//collectives:lr_schedule",
    "//collectives:optimizer_groups",
    "//collectives:zero_config",
    "//collectives:zero_engine",
    "//collectives:zero_options",
    "//collectives/callbacks:callback_communicator",
    "//collectives/callbacks:shared_memory",
    "//offload:device",
    "//offload:lane",
    "//offload:memory_manager",
    "//offload:worker_pool",
    "//offload/kernels:optimizer_options",
    "//offload/nvme:nvme_option",
    "//offload/record:record_reader",
    "//offload/record:record_writer",
    "//placement:placement_rules",
    "//placement:plan",
    "//placement:tier_model",
    "//placement:trace",
]

# Ranks that are processes of MPI, or GPUs, need more of a machine than the engine does, so they are asked for one by one.
HARDWARE_DOORS = [
    "//collectives/mpi:mpi_communicator",
    "//collectives/mpi:mpi_session",
    "//collectives/nccl:id_exchange",
    "//collectives/nccl:nccl_calls",
    "//collectives/nccl:nccl_communicator",
    "//offload/cuda:cuda_calls",
    "//offload/cuda:cuda_device",
    "//offload/cuda:cuda_runtime_calls",
]

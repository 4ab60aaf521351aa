#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors
"""fio and Castor's NVMe store, on the same file system in the same run.

For requests of 1, 4, 16 and 64 MiB, reads, writes and half of each: fio (io_uring, O_DIRECT, random order) and an NVMe store
(bazel-bin/tools/bench/nvme_benchmark), in turns, with requests of the same size and as many under way, each in a new file that was
written once just before, because a drive may hold in memory what is new; the store checks every byte it reads against a checksum.
Drives are noisy, so the ratio is the median of those of each round.

  bazel build //tools/bench:nvme_benchmark && tools/bench/nvme_comparison.py --dir FOLDER [--size MIB] [--rounds N] [--seconds S]

fio is in Debian's package of that name. Prints a Markdown table; FOLDER gets twice --size for the time of the run.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BENCHMARK = os.path.join(ROOT, "bazel-bin", "tools", "bench", "nvme_benchmark")
# MiB of a request: how many are under way. 32 MiB at least, which keeps a drive busy, and two at least, so that one is always there.
IN_FLIGHT = {1: 32, 4: 8, 16: 4, 64: 2}
MIXES = {"read": "randread", "write": "randwrite", "mixed": "randrw"}


def fio(file, size, seconds, mib, mix, extra):
    """Bytes per second, and processors used."""
    if os.path.exists(file):
        os.remove(file)
    subprocess.run(["fio", "--name=layout", f"--filename={file}", f"--size={size}m", "--bs=1m", "--iodepth=32", "--ioengine=io_uring",
                    "--direct=1", "--rw=write"], check=True, stdout=subprocess.DEVNULL)
    command = ["fio", "--name=castor", f"--filename={file}", f"--size={size}m", f"--bs={mib}m", f"--iodepth={IN_FLIGHT[mib]}",
               "--ioengine=io_uring", "--direct=1", f"--rw={MIXES[mix]}", "--time_based", f"--runtime={seconds}", "--thread",
               "--output-format=json"] + extra
    # Its buffers in huge pages too, where they are given on request: 4 KiB pages make more segments than a drive may take at once.
    huge = dict(os.environ, GLIBC_TUNABLES="glibc.malloc.hugetlb=1")
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=huge).stdout
    job = json.loads(said[said.index("{"):])["jobs"][0]
    return job["read"]["bw_bytes"] + job["write"]["bw_bytes"], (job["usr_cpu"] + job["sys_cpu"]) / 100


def castor(folder, size, seconds, mib, mix, extra):
    command = [BENCHMARK, "--nvme", f"{folder}:{size}MiB", "--request", f"{mib}MiB", "--in-flight", str(IN_FLIGHT[mib]), "--mix", mix,
               "--seconds", str(seconds)] + extra
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    if found["queue"] != "io_uring" or not found["direct"]:
        print(f"note: the store uses {found['queue']}, O_DIRECT: {found['direct']}", file=sys.stderr)
    return found["bytes_per_second"], found["processors"]


def measure(options, folder, file, mib, mix):
    """One row of the table."""
    rows = {"fio": [], "castor": []}
    for turn in range(options.rounds):
        for who in ("fio", "castor") if turn % 2 == 0 else ("castor", "fio"):
            if who == "fio":
                rows[who].append(fio(file, options.size, options.seconds, mib, mix, options.fio))
            else:
                rows[who].append(castor(folder, options.size, options.seconds, mib, mix, options.castor))
    ratios = [c[0] / f[0] for c, f in zip(rows["castor"], rows["fio"])]
    middle = {who: [statistics.median(column) for column in zip(*values)] for who, values in rows.items()}
    cells = [f"{mib} MiB", str(IN_FLIGHT[mib]), mix, f"{middle['fio'][0] / 1e9:.2f}", f"{middle['castor'][0] / 1e9:.2f}",
             f"{statistics.median(ratios):.2f}", f"{min(ratios):.2f} to {max(ratios):.2f}",
             f"{middle['fio'][1]:.2f}", f"{middle['castor'][1]:.2f}"]
    print("| " + " | ".join(cells) + " |", flush=True)
    return statistics.median(ratios)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", required=True, help="folder on the drive")
    parser.add_argument("--size", type=int, default=2048, help="MiB of the file (default 2048)")
    parser.add_argument("--rounds", type=int, default=5, help="of which the median counts (default 5)")
    parser.add_argument("--seconds", type=int, default=3, help="of one measurement (default 3)")
    parser.add_argument("--requests", type=int, nargs="+", default=sorted(IN_FLIGHT), choices=sorted(IN_FLIGHT), help="MiB")
    parser.add_argument("--mixes", nargs="+", default=list(MIXES), choices=list(MIXES))
    parser.add_argument("--fio", action="append", default=[], help="one more argument of fio, as --fio=--fixedbufs=1")
    parser.add_argument("--castor", action="append", default=[], help="one more argument of nvme_benchmark, as --castor=--no-register")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the folder goes
    if shutil.which("fio") is None:
        sys.exit("fio is missing: apt-get install fio")
    if not os.path.exists(BENCHMARK):
        sys.exit("nvme_benchmark is missing: bazel build //tools/bench:nvme_benchmark")
    header = ["request", "under way", "what", "fio GB/s", "Castor GB/s", "ratio", "lowest and highest", "fio processors",
              "Castor processors"]
    print("| " + " | ".join(header) + " |\n|" + "---|" * 3 + "---:|" * (len(header) - 3))
    with tempfile.TemporaryDirectory(dir=options.dir, prefix="castor-bench-") as folder:
        file = os.path.join(folder, "fio.data")
        ratios = [measure(options, folder, file, mib, mix) for mib in options.requests for mix in options.mixes]
    print(f"\nleast ratio {min(ratios):.2f}, median {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()

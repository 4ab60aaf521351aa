# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The Castor Authors

"""What Castor saves, read by the rules of safetensors alone, as any stock reader would; and weights that Castor did not write, read by it.

Arguments: train_gpt, castor. Only Python's own library is needed.
"""

import json
import math
import os
import struct
import subprocess
import sys
import tempfile

SIZES = {"F32": 4, "BF16": 2, "F16": 2}
MODEL = ["--layers", "1", "--heads", "2", "--embd", "32", "--seq", "16", "--ranks", "2"]


def unique(pairs):
    names = [name for name, _ in pairs]
    assert len(set(names)) == len(names), f"a key is there twice: {names}"
    return dict(pairs)


def read(path):
    """{name: (dtype, shape, bytes)} of a file, every rule of the format checked."""
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    assert length <= 100_000_000 and 8 + length <= len(data), path
    text = data[8 : 8 + length]
    assert text.startswith(b"{"), "a header begins with {"
    assert (8 + length) % 8 == 0, "data is aligned"
    header = json.loads(text.decode("utf-8"), object_pairs_hook=unique)
    metadata = header.pop("__metadata__", {})
    assert all(isinstance(key, str) and isinstance(value, str) for key, value in metadata.items())
    tensors, end = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        assert set(entry) == {"dtype", "shape", "data_offsets"}, entry
        begin, stop = entry["data_offsets"]
        assert begin == end, f"{name}: a hole or an overlap before it"
        assert stop - begin == SIZES[entry["dtype"]] * math.prod(entry["shape"]), name
        tensors[name] = (entry["dtype"], entry["shape"], data[8 + length + begin : 8 + length + stop])
        end = stop
    assert 8 + length + end == len(data), "bytes behind the last tensor"
    return tensors


def read_folder(folder):
    """The same of a folder as Hugging Face lays it out."""
    index = os.path.join(folder, "model.safetensors.index.json")
    if not os.path.exists(index):
        return read(os.path.join(folder, "model.safetensors"))
    with open(index, encoding="utf-8") as file:
        document = json.load(file, object_pairs_hook=unique)
    tensors, size = {}, 0
    for name in sorted(set(document["weight_map"].values())):
        for tensor, entry in read(os.path.join(folder, name)).items():
            assert document["weight_map"][tensor] == name and tensor not in tensors
            tensors[tensor] = entry
            size += len(entry[2])
    assert set(tensors) == set(document["weight_map"])
    assert document["metadata"]["total_size"] == size
    return tensors


def write(path, tensors, metadata):
    """A file as another program might write it: unsorted, spaces in the header, values behind each other."""
    header, data = {"__metadata__": metadata}, b""
    for name, (dtype, shape, values) in tensors:
        header[name] = {"shape": shape, "data_offsets": [len(data), len(data) + len(values)], "dtype": dtype}
        data += values
    text = json.dumps(header, indent=1).encode("utf-8")
    text += b" " * (-(8 + len(text)) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def floats(values):
    return struct.unpack(f"<{len(values) // 4}f", values)


def rounded(value):
    """fp32 to bf16, to nearest even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16) & 0xFFFF


def run(command, code=0):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout, done.stderr


def main(train, castor):
    with tempfile.TemporaryDirectory() as scratch:
        at = lambda *names: os.path.join(scratch, *names)
        with open(at("text"), "w", encoding="utf-8") as file:
            file.writelines(f"line {i * i} of the text\n" for i in range(200))
        model = [train, *MODEL, "--text", at("text")]
        listed = [line.split("\t") for line in run([*model, "--print-model"])[0].splitlines() if line[0] != "\t"]
        names = {name: [int(d) for d in shape.split(",")] for name, shape, _ in listed}

        # What is saved: weights by the model's names, and everything else beside them.
        run([*model, "--dtype", "bf16", "--steps", "2", "--save", at("run")])
        folder = at("run", "step-00000002")
        weights = read_folder(folder)
        assert {name: shape for name, (_, shape, _) in weights.items()} == names
        assert {dtype for dtype, _, _ in weights.values()} == {"BF16"}
        masters = read(os.path.join(folder, "optimizer", "master.safetensors"))
        for name, (_, _, values) in weights.items():
            master = floats(masters[f"{name}.master"][2])
            assert list(struct.unpack(f"<{len(master)}H", values)) == [rounded(value) for value in master], name
        for state in ("exp_avg", "exp_avg_sq"):
            moments = read(os.path.join(folder, "optimizer", f"{state}.safetensors"))
            assert {f"{name}.{state}" for name in names} == set(moments)

        # Converted, in one file and in several.
        run([castor, "ckpt", "convert", at("run"), "-o", at("wide"), "--dtype", "f32"])
        run([castor, "ckpt", "convert", at("run"), "-o", at("parts"), "--dtype", "f32", "--max-shard-size", "8KiB"])
        wide = read_folder(at("wide"))
        assert wide == read_folder(at("parts")) and len(os.listdir(at("parts"))) > 3
        assert all(wide[name][2] == masters[f"{name}.master"][2] for name in names)

        # A stranger's file, folder and index begin a training: with a rate of 0 its weights stay.
        mine = [(name, ("F32", shape, struct.pack(f"<{math.prod(shape)}f", *(((7 * i) % 1000 - 500) / 4096 for i in range(math.prod(shape))))))
                for name, shape in reversed(names.items())]
        os.mkdir(at("foreign"))
        write(at("foreign", "model.safetensors"), mine, {"format": "pt"})
        for number, init in enumerate((at("foreign"), at("foreign", "model.safetensors"), at("parts"))):
            kept = at(f"kept{number}")
            run([*model, "--steps", "1", "--lr", "0", "--init", init, "--save", kept])
            assert read_folder(os.path.join(kept, "step-00000001")) == (wide if init == at("parts") else dict(mine)), init
        # As Castor's own checkpoint does, in another type and from step 1.
        run([*model, "--dtype", "f32", "--steps", "1", "--lr", "0", "--init", at("run"), "--save", at("own")])
        assert read_folder(at("own", "step-00000001")) != {}
        # And are converted.
        run([castor, "ckpt", "convert", at("foreign"), "-o", at("half"), "--dtype", "bf16"])
        half = read_folder(at("half"))
        for name, (_, _, values) in mine:
            assert list(struct.unpack(f"<{len(values) // 4}H", half[name][2])) == [rounded(value) for value in floats(values)], name

        # What does not fit is named, with what is near.
        def refused(tensors, *words):
            write(at("bad.safetensors"), tensors, {})
            _, said = run([*model, "--steps", "1", "--init", at("bad.safetensors")], code=2)
            assert all(word in said for word in words), said

        first, rest = mine[0], mine[1:]
        refused(rest, f'"{first[0]}" is not in the checkpoint')
        refused([(first[0] + "x", first[1]), *rest], f'"{first[0]}" is not in the checkpoint', f'nearest of them "{first[0]}x"')
        refused([*mine, ("extra.weight", first[1])], '"extra.weight" is not one of the model')
        flat = ("F32", [math.prod(first[1][1])], first[1][2])
        if flat[1] != first[1][1]:
            refused([(first[0], flat), *rest], f'"{first[0]}" has shape')
        refused([(first[0], ("F32", [*first[1][1], 1], first[1][2])), *rest], f'"{first[0]}" has shape')
        _, said = run([*model, "--steps", "1", "--init", at("text")], code=2)
        assert "--init" in said or "text" in said, said
        with open(at("foreign", "model.safetensors"), "r+b") as file:
            file.truncate(os.path.getsize(file.name) - 1)
        run([*model, "--steps", "1", "--init", at("foreign")], code=4)


if __name__ == "__main__":
    main(*(os.path.abspath(path) for path in sys.argv[1:3]))

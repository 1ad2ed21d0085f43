"""Reads safetensors files with the safetensors package: a line per tensor with name, type and shape.

usage: check_safetensors.py FILE...
"""
import sys

import numpy as np
import safetensors


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for path in sys.argv[1:]:
        with safetensors.safe_open(path, framework="numpy") as file:
            names = sorted(file.keys())
            print(f"{path}: {len(names)} tensors, metadata {file.metadata()}")
            for name in names:
                value = file.get_tensor(name)
                bad = np.issubdtype(value.dtype, np.floating) and not np.isfinite(value).all()
                print(f"  {name} {value.dtype} {list(value.shape)}" + (" NOT FINITE" if bad else ""))


if __name__ == "__main__":
    main()

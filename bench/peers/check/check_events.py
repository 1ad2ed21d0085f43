"""Reads a folder of event files with TensorBoard's own reader: a line per tag with its steps and last value.

usage: check_events.py DIR
"""
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if not os.path.isdir(sys.argv[1]):
        sys.exit(f"{sys.argv[1]}: no such folder")
    events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "tensors": 0, "histograms": 0}).Reload()
    tags = events.Tags()
    print(f"{sys.argv[1]}: " + ", ".join(f"{len(tags[kind])} {kind}" for kind in ("scalars", "tensors", "histograms")))
    for kind, read in (("scalar", events.Scalars), ("tensor", events.Tensors), ("histogram", events.Histograms)):
        for tag in tags[kind + "s"]:
            points = read(tag)
            last = points[-1]
            value = {"scalar": lambda: last.value, "histogram": lambda: f"of {last.histogram_value.num:g} values",
                     "tensor": lambda: tensor_util.make_ndarray(last.tensor_proto)}[kind]()
            print(f"  {kind} {tag}: {len(points)} points, steps {[point.step for point in points]}, last {value}")
    return 0 if any(tags[kind] for kind in ("scalars", "tensors", "histograms")) else 1


if __name__ == "__main__":
    sys.exit(main())

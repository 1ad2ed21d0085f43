"""Reads every record of a file with TensorFlow (gzip by the name's ending), as tf.train.Example: count and first.

usage: check_tfrecord.py FILE
"""
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    path = sys.argv[1]
    count, first, error = 0, None, None
    try:
        for record in tf.data.TFRecordDataset(path, "GZIP" if path.endswith(".gz") else "").as_numpy_iterator():
            example = tf.train.Example.FromString(record)
            first = first or example
            count += 1
    except tf.errors.OpError as problem:
        error = problem.message.split("}} ")[-1].split(" [Op:")[0]
    print(f"{path}: {count} records" + (f", then: {error}" if error else ""))
    for name, feature in sorted(first.features.feature.items()) if first else ():
        kind = feature.WhichOneof("kind")
        print(f"  {name} {kind} {list(getattr(feature, kind).value) if kind else []}")
    return 1 if error else 0


if __name__ == "__main__":
    sys.exit(main())

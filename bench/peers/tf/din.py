"""DIN with TensorFlow's Estimator, in one process, from TFRecord files to a checkpoint and its AUC.

usage: din.py [--data DIR] [--steps N] [--epochs N] [--items N] [--users N] [--threads N] [--parse row|batch|both]
              [--seed N] [--repeats N]

DIR holds train-* and eval-* files; without it they are made: 200,000 and 50,000 rows. --steps 0 trains over
all of the files, --epochs times; otherwise that many steps of 512, so that another system can be compared
after the same number. --parse row is the job as people write it, each record parsed by itself; batch parses
512 in one call, which gives batches of the same form and is much faster.

Prints two objects. Training: examples a second of the whole call of train(), set-up and checkpoints
included; `steady` is the rate between the first step and the last, `process_seconds` counts the start of
the program too, imports above all. Then the AUC over the evaluation files. With repeats, each trains anew with
the next seed and the medians are printed.
"""
import time
BEGAN = time.time()

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf

START_UP = time.time() - BEGAN
v1 = tf.compat.v1
column = v1.feature_column
BATCH = 512
SPEC = {"label": v1.FixedLenFeature([], tf.int64), "user_id": v1.FixedLenFeature([], tf.string),
        "age": v1.FixedLenFeature([], tf.int64, 0), "gender": v1.FixedLenFeature([], tf.string),
        "item_id": v1.FixedLenFeature([], tf.string), "clicked_items_15d": v1.VarLenFeature(tf.string)}


def options():
    args = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1])
    args.add_argument("--data")
    args.add_argument("--parse", choices=("row", "batch", "both"), default="both")
    for name, value in (("steps", 0), ("epochs", 1), ("items", 100), ("users", 10000), ("threads", 2),
                        ("seed", 1), ("repeats", 1)):
        args.add_argument("--" + name, type=int, default=value)
    return args.parse_args()


def split_label(row):
    row["clicked_items_15d"] = tf.sparse.to_dense(row["clicked_items_15d"], "0")
    return row, row.pop("label")


def inputs(args, parse, kind):
    """Files interleaved, broken records skipped, shuffled in a buffer of 10,000, batches padded with "0"."""
    files = v1.data.Dataset.from_tensor_slices(sorted(tf.io.gfile.glob(f"{args.data}/{kind}-*")))
    rows = files.apply(v1.data.experimental.parallel_interleave(v1.data.TFRecordDataset, cycle_length=2, sloppy=True))
    rows = rows.apply(v1.data.experimental.ignore_errors())
    if parse == "row":
        rows = rows.map(lambda r: split_label(v1.parse_single_example(r, SPEC)), num_parallel_calls=args.threads)
    if kind == "train":
        rows = rows.shuffle(10000).repeat(args.epochs)
    if parse == "row":
        shapes = {k: [None] if k == "clicked_items_15d" else [] for k in SPEC if k != "label"}
        pads = {k: tf.constant(0, tf.int64) if k == "age" else tf.constant("0") for k in shapes}
        rows = rows.padded_batch(BATCH, (shapes, []), (pads, tf.constant(0, tf.int64)))
    else:
        rows = rows.batch(BATCH)
        rows = rows.map(lambda r: split_label(v1.parse_example(r, SPEC)), num_parallel_calls=args.threads)
    return rows.prefetch(-1)


def user_columns(args):
    def embedding(categorical, values):
        return column.embedding_column(categorical, min(16, 2 ** math.ceil(math.log2(values ** 0.25))))
    age = column.numeric_column("age", dtype=tf.int64)
    return [embedding(column.categorical_column_with_hash_bucket("user_id", args.users), args.users),
            embedding(column.bucketized_column(age, [18, 25, 36, 45, 55, 65, 80]), 8),
            embedding(column.categorical_column_with_hash_bucket("gender", 100), 100)]


def attend(history, item, real):
    """history is (B,T,E), item (B,E), real (B,T): the sum of history weighted by how each position scores."""
    target = tf.tile(tf.expand_dims(item, 1), [1, tf.shape(history)[1], 1])
    net = tf.concat([history, history - target, target, history * target], -1)
    for units in (16, 8):
        net = v1.layers.dense(net, units, tf.nn.relu)
    score = tf.squeeze(v1.layers.dense(net, 1), -1)
    score = v1.where(real, score, tf.ones_like(score) * (-2.0 ** 32 + 1))
    return tf.squeeze(tf.matmul(tf.expand_dims(tf.nn.softmax(score), 1), history), 1)


def din(features, labels, mode, params):
    args = params["args"]
    training = mode == tf.estimator.ModeKeys.TRAIN
    user = column.input_layer(features, user_columns(args))
    table = v1.get_variable("item", (args.items, 16), initializer=v1.initializers.glorot_uniform())

    def look_up(names):
        return tf.nn.embedding_lookup(table, tf.strings.to_hash_bucket_fast(names, args.items))
    item, clicked = look_up(features["item_id"]), features["clicked_items_15d"]
    net = tf.concat([user, item, attend(look_up(clicked), item, tf.not_equal(clicked, "0"))], -1)
    for units in (64, 16):
        net = v1.layers.dense(net, units, tf.nn.relu, kernel_initializer=v1.initializers.he_uniform())
        net = v1.layers.dropout(net, 0.3, training=training)
    logit = v1.layers.dense(net, 1)
    labels = tf.expand_dims(labels, 1)
    tf.size(labels, name="rows")
    loss = v1.losses.sigmoid_cross_entropy(labels, logit)
    if training:
        step = v1.train.get_global_step()
        rule = v1.train.AdagradOptimizer(v1.train.exponential_decay(0.1, step, 10000, 0.9))
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=rule.minimize(loss, step))
    auc = v1.metrics.auc(labels, tf.sigmoid(logit), num_thresholds=500)
    return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"auc": auc})


class Clock(v1.train.SessionRunHook):
    """When each step was done, and how many examples it had."""

    def begin(self):
        self.size = v1.get_default_graph().get_tensor_by_name("rows:0")
        self.times, self.rows = [], []

    def before_run(self, _):
        return v1.train.SessionRunArgs(self.size)

    def after_run(self, _, values):
        self.times.append(time.time())
        self.rows.append(int(values.results))


def train(args, parse, seed, model_dir):
    """One training and one evaluation; gives back what the two lines report."""
    session = v1.ConfigProto(inter_op_parallelism_threads=args.threads, intra_op_parallelism_threads=args.threads)
    config = tf.estimator.RunConfig(model_dir=model_dir, tf_random_seed=seed, session_config=session,
                                    save_summary_steps=100, save_checkpoints_steps=1000, keep_checkpoint_max=10,
                                    log_step_count_steps=100)
    estimator = tf.estimator.Estimator(din, config=config, params={"args": args})
    clock = Clock()
    start = time.time()
    estimator.train(lambda: inputs(args, parse, "train"), max_steps=args.steps or None, hooks=[clock])
    seconds = time.time() - start
    result = estimator.evaluate(lambda: inputs(args, parse, "eval"))
    rows = sum(clock.rows)
    return {"steps": len(clock.rows), "examples": rows, "seconds": seconds, "rate": rows / seconds,
            "steady": sum(clock.rows[1:]) / (clock.times[-1] - clock.times[0]),
            "auc": float(result["auc"]), "loss": float(result["loss"])}


def report(args, parse, runs):
    def median(key):
        return statistics.median(run[key] for run in runs)
    last = runs[-1]
    common = {"bench": "din", "peer": "tensorflow-" + tf.__version__, "repeats": len(runs)}
    case = f"estimator items={args.items} parse={parse} threads={args.threads}"
    print(json.dumps({**common, "case": case, "value": round(median("rate")), "unit": "examples/s",
                      "min": round(min(run["rate"] for run in runs)), "max": round(max(run["rate"] for run in runs)),
                      "steady": round(median("steady")), "seconds": round(median("seconds"), 2),
                      "process_seconds": round(START_UP + median("seconds"), 2), "steps": last["steps"],
                      "examples": last["examples"]}))
    print(json.dumps({**common, "case": f"auc after {last['steps']} steps", "value": round(median("auc"), 5),
                      "unit": "auc", "all": [round(run["auc"], 5) for run in runs],
                      "loss": round(median("loss"), 5)}), flush=True)


def main():
    args = options()
    warnings.simplefilter("ignore")
    v1.logging.set_verbosity(v1.logging.ERROR)
    v1.disable_v2_behavior()
    scratch = tempfile.mkdtemp()
    try:
        if not args.data:
            args.data = os.path.join(scratch, "data")
            gen = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gen.py")
            subprocess.run([sys.executable, gen, "--out", args.data], check=True, stdout=subprocess.DEVNULL)
        for parse in ("row", "batch") if args.parse == "both" else (args.parse,):
            report(args, parse, [train(args, parse, args.seed + i, os.path.join(scratch, f"{parse}{i}"))
                                 for i in range(args.repeats)])
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()

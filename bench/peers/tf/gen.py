"""Click logs with something to learn, as TFRecord files of tf.train.Example.

usage: gen.py --out DIR [--rows N] [--eval-rows N] [--users N] [--items N] [--history MAX] [--files N] [--seed N]

Users and items have hidden tastes; a click is a coin whose bias is how well they match, plus the
item's popularity and what age and gender add. A history is 0 to MAX items drawn by the user's taste,
so it tells of the taste without holding the label. Prints the AUC of the true biases over the
evaluation rows: the best that any model can reach on average.
"""
import argparse
import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow as tf

TASTES = 6


class World:
    """The hidden truth: who likes what."""

    def __init__(self, users, items, rng):
        self.user = rng.normal(size=(users, TASTES))
        self.item = rng.normal(size=(items, TASTES)) / np.sqrt(TASTES)
        self.popular = 0.7 * rng.normal(size=items)
        self.age = rng.integers(12, 90, users)
        self.gender = rng.integers(0, 3, users)
        self.by_gender = 0.4 * rng.normal(size=(3, items))
        self.shown = softmax(self.popular[None])[0]
        self.liked = np.cumsum(softmax(self.user @ self.item.T + self.popular), 1)

    def bias(self, user, item):
        logit = (1.2 * (self.user[user] * self.item[item]).sum(1) + self.popular[item]
                 + self.by_gender[self.gender[user], item] + 0.5 * np.sin(self.age[user] / 15.0) - 0.8)
        return 1 / (1 + np.exp(-logit))


def softmax(x):
    x = np.exp(x - x.max(1, keepdims=True))
    return x / x.sum(1, keepdims=True)


def auc(labels, scores):
    """Exact; the scores are assumed to differ."""
    rank = np.empty(len(scores))
    rank[np.argsort(scores)] = np.arange(1, len(scores) + 1)
    ones = labels.sum()
    return (rank[labels == 1].sum() - ones * (ones + 1) / 2) / (ones * (len(labels) - ones))


def example(label, user_id, age, gender, item_id, clicked):
    def text(values):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))

    def number(value):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[int(value)]))
    return tf.train.Example(features=tf.train.Features(feature={
        "label": number(label), "user_id": text([user_id]), "age": number(age), "gender": text([gender]),
        "item_id": text([item_id]), "clicked_items_15d": text(clicked)}))


def write(world, name, rows, files, history, rng, out):
    """Writes rows in `files` parts of about equal length; gives back the AUC of the true biases."""
    users, items = len(world.age), len(world.popular)
    user = rng.integers(0, users, rows)
    item = rng.choice(items, rows, p=world.shown)
    bias = world.bias(user, item)
    label = (rng.random(rows) < bias).astype(np.int64)
    length = rng.integers(0, history + 1, rows)
    for part, chunk in enumerate(np.array_split(np.arange(rows), files)):
        path = os.path.join(out, f"{name}-{part:05d}-of-{files:05d}.tfrecord")
        with tf.io.TFRecordWriter(path) as writer:
            for k in chunk:
                u = user[k]
                clicked = np.searchsorted(world.liked[u], rng.random(length[k])).clip(max=items - 1)
                writer.write(example(label[k], b"u%d" % u, world.age[u], b"%d" % world.gender[u],
                                     b"item%d" % item[k], [b"item%d" % i for i in clicked]).SerializeToString())
    return auc(label, bias)


def main():
    args = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1])
    args.add_argument("--out", required=True)
    for name, value in (("rows", 200000), ("eval-rows", 50000), ("users", 5000), ("items", 90),
                        ("history", 39), ("files", 8), ("seed", 7)):
        args.add_argument("--" + name, type=int, default=value)
    args = args.parse_args()
    os.makedirs(args.out, exist_ok=True)
    rng = np.random.default_rng(args.seed)
    world = World(args.users, args.items, rng)
    write(world, "train", args.rows, args.files, args.history, rng, args.out)
    best = write(world, "eval", args.eval_rows, 2, args.history, rng, args.out)
    print(json.dumps({"out": args.out, "rows": args.rows, "eval_rows": args.eval_rows, "best_auc": round(best, 5)}))


if __name__ == "__main__":
    main()

"""Golden numbers from TensorFlow, for tests to compare against, made anew from a seed.

usage: golden.py OUT_DIR SEED      writes the folder: other inputs, data and weights for every seed
       golden.py --check DIR       computes a folder's answers again from its inputs, and compares

The two share every definition: `fill_*` takes inputs as they stand in a file and adds the answers. A folder
that another program made is a check of this one.
"""
import gzip
import json
import math
import os
import struct
import sys
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
import numpy as np
import safetensors.numpy
import tensorflow as tf

v1 = tf.compat.v1
column = v1.feature_column
BATCH = 32
AGES = [18, 25, 36, 45, 55, 65, 80]
README = """# Golden numbers, seed %d

What TensorFlow %s (`compat.v1`, float32, one thread) computes; made by `golden.py`, which holds the definitions.

| file | holds |
|---|---|
| `hash.jsonl` | bytes (hex), their FarmHash Fingerprint64 and bucket numbers |
| `columns.json` | crossed columns, vocabulary with out-of-vocabulary buckets, bucketize, default embedding widths |
| `combiners.json` | sum, mean, sqrtn of looked-up rows, with and without weights |
| `update_rules.json` | weights after each of 8 steps, dense and sparse gradients, 7 rules |
| `schedules.json` | learning rates at chosen steps |
| `metrics.json` | labels and predictions, AUC of 500 thresholds, exact AUC, log loss |
| `din/` | DIN, 40 steps of 32 examples in file order, no dropout, no shuffle |
| `mlp/` | 784-64-32-10, Adam 1e-3, 30 steps of 32 images in file order |
| `broken/` | damaged record files and how many whole records each holds |

Weights are input x output. Rows of `hidden/0/weight`: age, gender, user_id, item, attended history; of
`attention/0/weight`: h, h - t, t, h * t.
"""


def session(graph):
    one_thread = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    return v1.Session(graph=graph, config=one_thread)


def evaluate(build):
    """The value of the tensors that build() makes, in a graph of their own."""
    with tf.Graph().as_default() as graph, session(graph) as run:
        tensors = build()
        run.run([v1.global_variables_initializer(), v1.tables_initializer()])
        return run.run(tensors)


def read_json(path):
    with open(path) as file:
        return json.load(file)


def write_json(path, value):
    with open(path, "w") as file:
        json.dump(value, file, indent=1)
        file.write("\n")


def read_lines(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def write_lines(path, rows):
    with open(path, "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


# hash.jsonl

def make_hash(rng):
    words = [b"", b"0", b"1", b"\0", b"\xff", b"\xff\xfe\0y", "naïve".encode(), "点击率".encode(), b"item07", b"user_42"]
    lengths = [*range(1, 71), 95, 96, 97, 127, 128, 129, 191, 192, 193, 255, 256, 257, 511, 1000]
    words += [rng.bytes(n) for n in lengths]
    words += [b"item%d" % n for n in rng.integers(0, 10 ** 9, 100)]
    return fill_hash([{"hex": word.hex()} for word in words])


def fill_hash(rows):
    words = [bytes.fromhex(row["hex"]) for row in rows]
    buckets = {"mod_100": 100, "mod_10000": 10000, "mod_1000003": 1000003, "mod_2e62": 2 ** 62}
    prints, *mods = evaluate(lambda: [tf.fingerprint(tf.constant(words)[:, None])] + [
        tf.strings.to_hash_bucket_fast(words, n) for n in buckets.values()])
    return [{"hex": row["hex"], "fingerprint64": str(int.from_bytes(prints[i].tobytes(), "little")),
             **{name: str(mod[i]) if name == "mod_2e62" else int(mod[i]) for name, mod in zip(buckets, mods)}}
            for i, row in enumerate(rows)]


# columns.json

def make_columns(rng):
    rows = [(f"x{a}", f"y{b}") for a, b in rng.integers(0, 30, (40, 2))]
    edges = sorted(int(n) for b in AGES for n in (b - 1, b, b + 1))
    widths = [2, 8, 10, 16, 17, 81, 100, 256, 257, 1000, 10000, 65536, 65537, 1000000, 10000000]
    return fill_columns({
        "cross": {"buckets": int(rng.integers(500, 5000)), "rows": [{"a": a, "b": b} for a, b in rows]},
        "vocabulary": {"words": ["x1", "x2", "x3", "x5"], "oov_buckets": 7, "rows": [{"a": a} for a, _ in rows]},
        "bucketize": {"boundaries": AGES, "values": [-5, 0, *edges, 1000]},
        "default_width": {str(n): None for n in widths}})


def one_hot_index(features, categorical):
    """Which bucket a column puts each row into: the hot place of its indicator."""
    return tf.argmax(column.input_layer(features, [categorical]), 1)


def fill_columns(doc):
    cross, words, bucketize = doc["cross"], doc["vocabulary"], doc["bucketize"]

    def build():
        pairs = {k: tf.constant([[row[k]] for row in cross["rows"]]) for k in "ab"}
        crossed = column.crossed_column(["a", "b"], cross["buckets"])
        known = column.categorical_column_with_vocabulary_list("a", words["words"],
                                                               num_oov_buckets=words["oov_buckets"])
        value = column.numeric_column("value", dtype=tf.int64)
        single = {"a": tf.constant([[row["a"]] for row in words["rows"]])}
        numbers = {"value": tf.constant(bucketize["values"], tf.int64)[:, None]}
        return [one_hot_index(pairs, column.indicator_column(crossed)),
                one_hot_index(single, column.indicator_column(known)),
                one_hot_index(numbers, column.bucketized_column(value, bucketize["boundaries"]))]
    buckets, ids, places = evaluate(build)
    return {
        "cross": {**cross, "rows": [{"a": r["a"], "b": r["b"], "bucket": int(n)}
                                    for r, n in zip(cross["rows"], buckets)]},
        "vocabulary": {**words, "rows": [{"a": r["a"], "id": int(n)} for r, n in zip(words["rows"], ids)]},
        "bucketize": {**bucketize, "buckets": [int(n) for n in places]},
        "default_width": {n: 2 ** math.ceil(math.log2(int(n) ** 0.25)) for n in doc["default_width"]}}


# combiners.json

def make_combiners(rng):
    lengths = rng.integers(1, 6, 12)
    return fill_combiners({
        "table": floats(rng.normal(size=(20, 4))),
        "ids": [[int(i) for i in rng.integers(0, 20, n)] for n in lengths],
        "weights": [floats(rng.uniform(0.1, 2.0, n)) for n in lengths]})


def floats(array):
    """float32 values as Python numbers, so that a reader gets the same bits."""
    return np.asarray(array, np.float32).tolist()


def fill_combiners(doc):
    places = [(i, j) for i, row in enumerate(doc["ids"]) for j in range(len(row))]
    shape = (len(doc["ids"]), max(map(len, doc["ids"])))
    names = [(way + tail, way, tail) for tail in ("", "_weighted") for way in ("sum", "mean", "sqrtn")]

    def build():
        table = tf.constant(doc["table"], tf.float32)
        ids = tf.SparseTensor(places, tf.constant(sum(doc["ids"], []), tf.int64), shape)
        weights = tf.SparseTensor(places, tf.constant(sum(doc["weights"], []), tf.float32), shape)
        return [v1.nn.embedding_lookup_sparse(table, ids, weights if tail else None, combiner=way)
                for _, way, tail in names]
    return {**{k: doc[k] for k in ("table", "ids", "weights")},
            **{name: floats(value) for (name, _, _), value in zip(names, evaluate(build))}}


# update_rules.json

RULES = {
    "sgd": lambda s: v1.train.GradientDescentOptimizer(s["learning_rate"]),
    "momentum": lambda s: v1.train.MomentumOptimizer(s["learning_rate"], s["momentum"]),
    "nesterov": lambda s: v1.train.MomentumOptimizer(s["learning_rate"], s["momentum"], use_nesterov=True),
    "adagrad": lambda s: v1.train.AdagradOptimizer(s["learning_rate"], s["initial_accumulator"]),
    "rmsprop": lambda s: v1.train.RMSPropOptimizer(s["learning_rate"], s["decay"], s["momentum"], s["epsilon"]),
    "adam": lambda s: v1.train.AdamOptimizer(s["learning_rate"], s["beta1"], s["beta2"], s["epsilon"]),
    "ftrl": lambda s: v1.train.FtrlOptimizer(s["learning_rate"], s["learning_rate_power"], s["initial_accumulator"],
                                             s["l1"], s["l2"]),
}


def make_update_rules(rng):
    def near(value):
        return round(value * rng.uniform(0.5, 1.5), 4)
    settings = {
        "sgd": {"learning_rate": near(0.1)},
        "momentum": {"learning_rate": near(0.1), "momentum": 0.85},
        "nesterov": {"learning_rate": near(0.1), "momentum": 0.85},
        "adagrad": {"learning_rate": near(0.1), "initial_accumulator": near(0.1)},
        "rmsprop": {"learning_rate": near(0.01), "decay": 0.8, "momentum": near(0.5), "epsilon": 1e-10},
        "adam": {"learning_rate": near(0.01), "beta1": 0.8, "beta2": 0.99, "epsilon": 1e-8},
        "ftrl": {"learning_rate": near(0.1), "learning_rate_power": -0.5, "initial_accumulator": near(0.1),
                 "l1": near(0.01), "l2": near(0.02)}}
    return fill_update_rules({
        "start": floats(rng.normal(size=(6, 3))),
        "dense_gradients": floats(rng.normal(size=(8, 6, 3))),
        "sparse_rows": rng.integers(0, 6, (8, 4)).tolist(),
        "sparse_gradients": floats(rng.normal(size=(8, 4, 3))),
        "rules": {name: {"settings": {"type": name, **s}} for name, s in settings.items()},
        "notes": "Duplicate rows of one sparse gradient are summed before the rule is applied. TensorFlow's sparse "
                 "adam decays m and v of every row and moves every row; a lazy one touches only the given rows."})


def apply_rule(settings, start, gradients, rows=None):
    """The weights after each gradient; with rows, gradients are sparse."""
    with tf.Graph().as_default() as graph, session(graph) as run:
        weight = v1.get_variable("weight", initializer=tf.constant(start, tf.float32))
        gradient = v1.placeholder(tf.float32, np.shape(gradients)[1:])
        index = v1.placeholder(tf.int64, [None])
        slices = gradient if rows is None else tf.IndexedSlices(gradient, index, weight.shape)
        update = RULES[settings["type"]](settings).apply_gradients([(slices, weight)])
        run.run(v1.global_variables_initializer())
        after = []
        for i, value in enumerate(gradients):
            run.run(update, {gradient: value, index: [] if rows is None else rows[i]})
            after.append(floats(run.run(weight)))
        return after


def fill_update_rules(doc):
    rules = {name: {"settings": rule["settings"],
                    "dense": apply_rule(rule["settings"], doc["start"], doc["dense_gradients"]),
                    "sparse": apply_rule(rule["settings"], doc["start"], doc["sparse_gradients"], doc["sparse_rows"])}
             for name, rule in doc["rules"].items()}
    return {**doc, "rules": rules}


# schedules.json

def make_schedules(rng):
    span = int(rng.integers(300, 3000))
    steps = sorted({0, 1, 10, 99, 100, 101, span // 2, span - 1, span, span + 1, 5 * span, 20000})
    return fill_schedules({
        "learning_rate": 0.2, "steps": steps,
        "exponential": {"settings": {"rate": 0.8, "steps": span}},
        "exponential_staircase": {"settings": {"rate": 0.8, "steps": span, "staircase": True}},
        "polynomial": {"settings": {"steps": span, "end": 0.002, "power": 1.5}},
        "cosine": {"settings": {"steps": span, "alpha": 0.05}},
        "piecewise": {"settings": {"boundaries": [100, span], "values": [0.2, 0.08, 0.02]}}})


def fill_schedules(doc):
    rate = doc["learning_rate"]
    rules = {
        "exponential": lambda t, s: v1.train.exponential_decay(rate, t, s["steps"], s["rate"]),
        "exponential_staircase": lambda t, s: v1.train.exponential_decay(rate, t, s["steps"], s["rate"], True),
        "polynomial": lambda t, s: v1.train.polynomial_decay(rate, t, s["steps"], s["end"], s["power"]),
        "cosine": lambda t, s: v1.train.cosine_decay(rate, t, s["steps"], s["alpha"]),
        "piecewise": lambda t, s: v1.train.piecewise_constant(t, s["boundaries"], s["values"])}
    return {**doc, **{name: {**doc[name], "values": floats(evaluate(
        lambda: [rule(tf.constant(t), doc[name]["settings"]) for t in doc["steps"]]))} for name, rule in rules.items()}}


# metrics.json

def make_metrics(rng):
    def case(name, rows, score):
        labels = (rng.random(rows) < 0.35).astype(int)
        return {"name": name, "labels": labels.tolist(), "predictions": floats(score(labels, rows))}
    return fill_metrics([
        case("random", 250, lambda y, n: rng.random(n)),
        case("good", 300, lambda y, n: np.clip(0.3 + 0.4 * y + 0.15 * rng.normal(size=n), 0.01, 0.99)),
        # 0 and 1 are given only where they are right: a log loss would be infinite otherwise.
        case("ties", 200, lambda y, n: np.clip(np.round(0.35 + 0.3 * y + 0.25 * rng.normal(size=n), 1),
                                               0.1 * y, 0.9 + 0.1 * y)),
        case("narrow", 200, lambda y, n: 0.5 + 0.001 * rng.normal(size=n))])


def auc_500(labels, predictions):
    with tf.Graph().as_default() as graph, session(graph) as run:
        value, update = v1.metrics.auc(tf.constant(labels), tf.constant(predictions, tf.float32), num_thresholds=500)
        run.run(v1.local_variables_initializer())
        run.run(update)
        return float(run.run(value))


def auc_exact(labels, predictions):
    """The chance that a one scores above a zero, a tie being half."""
    labels, predictions = np.asarray(labels), np.asarray(predictions)
    ones, zeros = predictions[labels == 1][:, None], predictions[labels == 0][None]
    return float(((ones > zeros) + 0.5 * (ones == zeros)).mean())


def log_loss(labels, predictions):
    p = np.clip(np.asarray(predictions, np.float64), 1e-7, 1 - 1e-7)
    return float(-np.where(np.asarray(labels) == 1, np.log(p), np.log(1 - p)).mean())


def fill_metrics(cases):
    return [{**case, **{f.__name__: f(case["labels"], case["predictions"]) for f in (auc_500, auc_exact, log_loss)}}
            for case in cases]


# din/

DIN_SHAPES = {
    "user_id/embedding": (10000, 16), "age/embedding": (8, 2), "gender/embedding": (100, 4),
    "item/embedding": (100, 16), "attention/0/weight": (64, 16), "attention/0/bias": (16,),
    "attention/1/weight": (16, 8), "attention/1/bias": (8,), "attention/2/weight": (8, 1), "attention/2/bias": (1,),
    "hidden/0/weight": (54, 64), "hidden/0/bias": (64,), "hidden/1/weight": (64, 16), "hidden/1/bias": (16,),
    "output/weight": (16, 1), "output/bias": (1,)}
MLP_SHAPES = {
    "hidden/0/weight": (784, 64), "hidden/0/bias": (64,), "hidden/1/weight": (64, 32), "hidden/1/bias": (32,),
    "output/weight": (32, 10), "output/bias": (10,)}


def initial(shapes, seed, he=()):
    """Glorot uniform weights, He uniform where named, embeddings of the user truncated normal; biases zero."""
    def one(name, shape, seed):
        if name.endswith("bias"):
            return tf.zeros(shape)
        if name.endswith("embedding") and not name.startswith("item"):
            return v1.truncated_normal_initializer(stddev=1 / math.sqrt(shape[1]), seed=seed)(shape)
        rule = v1.initializers.he_uniform if name in he else v1.initializers.glorot_uniform
        return rule(seed=seed)(shape)
    names = list(shapes)
    return dict(zip(names, evaluate(lambda: [one(n, shapes[n], seed * 100 + i) for i, n in enumerate(names)])))


def variables(values):
    return {name: v1.get_variable(name.replace("/", "_"), initializer=tf.constant(value))
            for name, value in values.items()}


def dense(w, name, x):
    """x is (..., IN): through the layer of that name, without its activation."""
    return tf.tensordot(x, w[name + "/weight"], 1) + w[name + "/bias"]


def din_logits(w, row):
    def look_up(name, text):
        table = w[name + "/embedding"]
        return tf.nn.embedding_lookup(table, tf.strings.to_hash_bucket_fast(text, table.shape[0]))
    age = tf.nn.embedding_lookup(w["age/embedding"], tf.raw_ops.Bucketize(input=row["age"], boundaries=AGES))
    user = [age, look_up("gender", row["gender"]), look_up("user_id", row["user_id"])]
    clicked = tf.sparse.to_dense(row["clicked_items_15d"], "0")
    item, h = look_up("item", row["item_id"]), look_up("item", clicked)
    t = tf.tile(item[:, None], [1, tf.shape(h)[1], 1])
    x = tf.concat([h, h - t, t, h * t], -1)
    for i in (0, 1):
        x = tf.nn.relu(dense(w, f"attention/{i}", x))
    score = dense(w, "attention/2", x)[..., 0]
    score = tf.where(tf.not_equal(clicked, "0"), score, tf.fill(tf.shape(score), -2.0 ** 32 + 1))
    x = tf.concat([*user, item, tf.matmul(tf.nn.softmax(score)[:, None], h)[:, 0]], -1)
    for i in (0, 1):
        x = tf.nn.relu(dense(w, f"hidden/{i}", x))
    return dense(w, "output", x)[:, 0]


def fill_din(records, start):
    """Trains over the records in order: the lines of steps.jsonl, the final weights with slots, eval.json."""
    spec = {"label": v1.FixedLenFeature([], tf.int64), "user_id": v1.FixedLenFeature([], tf.string),
            "age": v1.FixedLenFeature([], tf.int64, 0), "gender": v1.FixedLenFeature([], tf.string),
            "item_id": v1.FixedLenFeature([], tf.string), "clicked_items_15d": v1.VarLenFeature(tf.string)}
    batches = [records[i:i + BATCH] for i in range(0, len(records), BATCH)]
    with tf.Graph().as_default() as graph, session(graph) as run:
        w = variables(start)
        batch = v1.placeholder(tf.string, [None])
        row = v1.parse_example(batch, spec)
        logits = din_logits(w, row)
        loss = v1.losses.sigmoid_cross_entropy(row["label"], logits)
        step = v1.train.get_or_create_global_step()
        rate = v1.train.exponential_decay(0.1, step, 10000, 0.9)
        rule = v1.train.AdagradOptimizer(rate, 0.1)
        pairs = rule.compute_gradients(loss, list(w.values()))
        norms = [tf.norm(tf.convert_to_tensor(gradient)) for gradient, _ in pairs]
        with tf.control_dependencies([loss, rate, *norms]):
            update = rule.apply_gradients(pairs, step)
        run.run(v1.global_variables_initializer())
        steps = []
        for i, records_of in enumerate(batches):
            values = run.run([loss, rate, norms, update], {batch: records_of})[:3]
            steps.append({"step": i + 1, "loss": float(values[0]), "learning_rate": float(values[1]),
                          "gradient_norms": {name: float(norm) for name, norm in zip(w, values[2])}})
        final = run.run({**w, **{name + "/adagrad": rule.get_slot(v, "accumulator") for name, v in w.items()}})
        outcome = [run.run([loss, tf.sigmoid(logits), row["label"]], {batch: b}) for b in batches]
    labels = np.concatenate([labels for _, _, labels in outcome])
    predictions = np.concatenate([p for _, p, _ in outcome])
    summary = {"loss": float(np.mean([part for part, _, _ in outcome], dtype=np.float64)),
               "auc_500": auc_500(labels, predictions), "auc_exact": auc_exact(labels, predictions),
               "predictions": floats(predictions)}
    return steps, final, summary


def make_examples(rng, rows=1280, users=400, items=85, history=11):
    """Clicks that depend on user, item, age and whether the history holds an item's neighbour."""
    taste, pull = rng.normal(size=users), rng.normal(size=items)
    out = []
    for _ in range(rows):
        user, item, age, gender = (int(rng.integers(0, n)) for n in (users, items, 100, 3))
        clicked = rng.integers(0, items, rng.integers(0, history + 1))
        logit = 0.6 * taste[user] + pull[item] + 0.01 * (age - 50) + 0.5 * np.any(abs(clicked - item) < 4)
        label = int(rng.random() < 1 / (1 + math.exp(-logit)))
        texts = {"user_id": [f"u{user}"], "gender": [str(gender)], "item_id": [f"item{item}"],
                 "clicked_items_15d": [f"item{i}" for i in clicked]}
        feature = {name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[v.encode() for v in values]))
                   for name, values in texts.items()}
        feature.update({name: tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
                        for name, value in {"label": label, "age": age}.items()})
        out.append(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    return out


def read_records(path):
    return list(evaluate(lambda: v1.data.make_one_shot_iterator(
        v1.data.TFRecordDataset(path).batch(10 ** 6)).get_next()))


def make_din(rng, seed, out):
    records = make_examples(rng)
    for name, packing in (("data.tfrecord", ""), ("data.tfrecord.gz", "GZIP")):
        with tf.io.TFRecordWriter(os.path.join(out, name), packing) as writer:
            for record in records:
                writer.write(record)
    start = initial(DIN_SHAPES, seed, he=("hidden/0/weight", "hidden/1/weight"))
    steps, final, summary = fill_din(records, start)
    safetensors.numpy.save_file(start, os.path.join(out, "init.safetensors"))
    safetensors.numpy.save_file(final, os.path.join(out, "final.safetensors"))
    write_lines(os.path.join(out, "steps.jsonl"), steps)
    write_json(os.path.join(out, "eval.json"), summary)


# mlp/

def fill_mlp(images, labels, start):
    with tf.Graph().as_default() as graph, session(graph) as run:
        w = variables(start)
        x, y = v1.placeholder(tf.float32, [None, 784]), v1.placeholder(tf.int64, [None])
        net = x
        for i in (0, 1):
            net = tf.nn.relu(dense(w, f"hidden/{i}", net))
        loss = v1.losses.sparse_softmax_cross_entropy(y, dense(w, "output", net))
        update = v1.train.AdamOptimizer(1e-3).minimize(loss)
        run.run(v1.global_variables_initializer())
        pixels = images.reshape(-1, 784).astype(np.float32) / np.float32(255)
        steps = []
        for i in range(0, len(labels), BATCH):
            feed = {x: pixels[i:i + BATCH], y: labels[i:i + BATCH]}
            steps.append({"step": i // BATCH + 1, "loss": float(run.run([loss, update], feed)[0])})
        return steps, run.run(w)


def idx_write(path, array):
    name = os.path.basename(path)[:-3]
    with open(path, "wb") as raw, gzip.GzipFile(name, "wb", fileobj=raw, mtime=0) as file:
        file.write(struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes())


def idx_read(path):
    data = gzip.open(path).read()
    shape = struct.unpack_from(f">{data[3]}I", data, 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)


def make_mlp(rng, seed, out, rows=960):
    labels = rng.integers(0, 10, rows).astype(np.uint8)
    marks = rng.random((10, 28, 28)) < 0.1
    images = (255 * rng.random((rows, 28, 28)) ** np.where(marks[labels], 1, 3)).astype(np.uint8)
    start = initial(MLP_SHAPES, seed)
    steps, final = fill_mlp(images, labels, start)
    idx_write(os.path.join(out, "images-idx3-ubyte.gz"), images)
    idx_write(os.path.join(out, "labels-idx1-ubyte.gz"), labels)
    safetensors.numpy.save_file(start, os.path.join(out, "init.safetensors"))
    safetensors.numpy.save_file(final, os.path.join(out, "final.safetensors"))
    write_lines(os.path.join(out, "steps.jsonl"), steps)


# broken/

def make_broken(data, out):
    """Damage to record 100 of the first 200 of a good file, and two files that never were one."""
    ends, at = [0], 0
    for _ in range(200):
        at += 16 + struct.unpack_from("<Q", data, at)[0]
        ends.append(at)
    whole, hit = data[:ends[200]], ends[100]

    def flip(place):
        return whole[:place] + bytes([whole[place] ^ 0x40]) + whole[place + 1:]
    files = {"truncated_in_payload": (whole[:hit + 40], 100), "truncated_in_length": (whole[:hit + 5], 100),
             "payload_bit_flipped_in_record_100": (flip(hit + 30), 199),
             "length_bit_flipped_in_record_100": (flip(hit + 1), 100),
             "empty": (b"", 0), "not_tfrecord": (b"label,user_id\n1,a\n" * 50, 0)}
    for name, (content, _) in files.items():
        with open(os.path.join(out, name + ".tfrecord"), "wb") as file:
            file.write(content)
    write_json(os.path.join(out, "index.json"),
               [{"file": name + ".tfrecord", "whole_records": count} for name, (_, count) in files.items()])


# The folder

FILES = {"columns.json": (make_columns, fill_columns), "combiners.json": (make_combiners, fill_combiners),
         "update_rules.json": (make_update_rules, fill_update_rules),
         "schedules.json": (make_schedules, fill_schedules), "metrics.json": (make_metrics, fill_metrics)}


def make(out, seed):
    for name in ("din", "mlp", "broken"):
        os.makedirs(os.path.join(out, name), exist_ok=True)
    rng = np.random.default_rng(seed)
    with open(os.path.join(out, "README.md"), "w") as file:
        file.write(README % (seed, tf.__version__))
    write_lines(os.path.join(out, "hash.jsonl"), make_hash(rng))
    for name, (make_one, _) in FILES.items():
        write_json(os.path.join(out, name), make_one(rng))
    make_din(rng, seed, os.path.join(out, "din"))
    make_mlp(rng, seed, os.path.join(out, "mlp"))
    with open(os.path.join(out, "din", "data.tfrecord"), "rb") as file:
        make_broken(file.read(), os.path.join(out, "broken"))


def difference(a, b):
    """The largest difference between two nests of numbers; infinite where they differ in anything else."""
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return max([0.0, *(difference(a[k], b[k]) for k in a)])
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return max([0.0, *(difference(x, y) for x, y in zip(a, b))])
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.shape == b.shape:
        return float(abs(a.astype(np.float64) - b).max())
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return abs(a - b)
    return 0.0 if type(a) is type(b) and a == b else math.inf


def check(folder):
    def at(*name):
        return os.path.join(folder, *name)
    worst = []

    def compare(name, got, want, limit):
        worst.append((name, difference(got, want), limit))
    rows = read_lines(at("hash.jsonl"))
    compare("hash.jsonl", fill_hash(rows), rows, 0)
    for name, (_, fill) in FILES.items():
        want = read_json(at(name))
        compare(name, fill(want), want, 0 if name == "columns.json" else 1e-6)
    for name, fill, data in (("din", fill_din, lambda: (read_records(at("din", "data.tfrecord")),)),
                             ("mlp", fill_mlp, lambda: (idx_read(at("mlp", "images-idx3-ubyte.gz")),
                                                        idx_read(at("mlp", "labels-idx1-ubyte.gz"))))):
        steps, final, *rest = fill(*data(), safetensors.numpy.load_file(at(name, "init.safetensors")))
        compare(name + "/steps.jsonl", steps, read_lines(at(name, "steps.jsonl")), 1e-5)
        compare(name + "/final.safetensors", final, safetensors.numpy.load_file(at(name, "final.safetensors")), 2e-5)
        if rest:
            compare(name + "/eval.json", rest[0], read_json(at(name, "eval.json")), 1e-5)
    for name, value, limit in worst:
        print(f"{'ok ' if value <= limit else 'BAD'} {name}: largest difference {value:.3g}, allowed {limit:g}")
    return all(value <= limit for _, value, limit in worst)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    warnings.simplefilter("ignore")
    v1.logging.set_verbosity(v1.logging.ERROR)
    v1.disable_v2_behavior()
    if sys.argv[1] == "--check":
        return 0 if check(sys.argv[2]) else 1
    make(sys.argv[1], int(sys.argv[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main())

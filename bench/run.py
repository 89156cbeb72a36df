"""Times shardwright beside its peers, alternating in one run, and writes bench/results.json and docs/benchmarks.md.

Usage: python bench/run.py [--rounds N] [--dir DIR] [--only CASE ...]

With --only the other cases keep what was measured before.
Seconds on a shared machine mean little: ratios of minima within one run do. Before every timed run memory is touched and freed (see
bench_touch.cc), outputs are removed and everything is synced, for every rival alike. "Cold" drops the sources from the page cache.
"""

import argparse
import importlib.util
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time

import figure

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.environ.get("SHARDWRIGHT_BIN", os.path.join(ROOT, "build", "shardwright"))
BUILD = os.path.dirname(PROGRAM)
os.environ["BENCH_TOUCH"] = os.path.join(BUILD, "bench_touch")
PEERS = [sys.executable, os.path.join(ROOT, "bench", "peers.py")]
RESULTS = os.path.join(ROOT, "bench", "results.json")
SHARDS, RESHARD = "500MB", "300MB"
KERAS_BYTES = (16384 + 28 * 4096) * 4096 * 4 + 28 * 4096 * 4  # bench/peers.py, keras_model


def drop_cache(directory):
    for folder, _, names in os.walk(directory):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def size_of(directory):
    return sum(os.path.getsize(os.path.join(f, n)) for f, _, names in os.walk(directory) for n in names)


class Rival:
    """One way to do a job: run() returns a dict with at least `seconds`."""

    def __init__(self, name, run, ours=False):
        self.name, self.run, self.ours, self.samples = name, run, ours, []


def shell(command):
    start = time.perf_counter()
    subprocess.run(command, shell=True, check=True)
    return {"seconds": time.perf_counter() - start}


def program(*arguments):
    start = time.perf_counter()
    out = subprocess.run([PROGRAM, *arguments, "--json", "--progress", "never"], check=True, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    summary = json.loads(out.stdout.strip().splitlines()[-1])
    return {"seconds": seconds, "peak_anonymous_bytes": summary["peak_memory_bytes"]}


def child(command):
    out = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(out.stdout.strip().splitlines()[-1])


class Bench:
    def __init__(self, directory, rounds):
        self.directory, self.rounds, self.cases = directory, rounds, {}
        self.source = os.path.join(directory, "source")
        self.keras = os.path.join(directory, "keras")
        self.out = os.path.join(directory, "out")

    def prepare(self):
        os.makedirs(self.directory, exist_ok=True)
        if not os.path.exists(os.path.join(self.source, "model.safetensors.index.json")):
            shutil.rmtree(self.source, ignore_errors=True)
            subprocess.run([*PEERS, "make", self.source, SHARDS], check=True)
        shutil.rmtree(self.keras, ignore_errors=True)
        os.makedirs(self.keras)
        program("copy", self.source, os.path.join(self.keras, "model.weights.json"), "--max-shard-size", SHARDS)
        self.bytes = size_of(self.source)

    def writers(self, copy, source):
        """copy, and what else writes as many bytes: the usual ways, and the disk alone, below which nothing can be."""
        return [Rival("shardwright copy", copy, True),
                Rival("cp -r; sync", lambda: shell(f"cp -r {source} {self.out} && sync")),
                Rival("hub load and save; sync", lambda: child([*PEERS, "hub_reshard", self.source, self.out, RESHARD])),
                self.disk_alone()]

    def disk_alone(self):
        blocks = -(-self.bytes // 2**24)
        return Rival("the disk alone (O_DIRECT zeros)",
                     lambda: shell(f"dd if=/dev/zero of={self.out} bs=16M count={blocks} oflag=direct 2> /dev/null; rm {self.out}"))

    def time(self, case, rivals, target, cold=False, nbytes=None, sources=None):
        """target: {rival: highest allowed ratio of our minimum to its minimum}. sources: folders that are read, in the page cache before
        each run, or out of it (cold)."""
        sources = sources or [self.source, self.keras]
        for turn in range(self.rounds):
            for rival in rivals if turn % 2 == 0 else rivals[::-1]:
                shutil.rmtree(self.out, ignore_errors=True)
                os.sync()
                for folder in sources:
                    if cold:
                        drop_cache(folder)
                    else:
                        subprocess.run(f"find {folder} -type f -exec cat {{}} + > /dev/null", shell=True, check=True)
                subprocess.run([os.environ["BENCH_TOUCH"], str(6 * 2**30)], check=True)
                rival.samples.append(rival.run())
                print(f"{case:24} {rival.name:40} {rival.samples[-1]['seconds']:.3f} s", flush=True)
        shutil.rmtree(self.out, ignore_errors=True)
        sums = {s["sum"] for r in rivals for s in r.samples if "sum" in s}
        if len(sums) > 1:
            raise SystemExit(f"{case}: rivals read different values")
        self.cases[case] = {"date": time.strftime("%Y-%m-%d"), "rounds": self.rounds, "bytes": nbytes or self.bytes, "goal": target,
                            "ours": next(r.name for r in rivals if r.ours), "samples": {r.name: r.samples for r in rivals}}

    def reshard(self):
        copy = lambda: program("copy", self.source, self.out, "--max-shard-size", RESHARD)
        self.time("reshard", self.writers(copy, self.source), {"cp -r; sync": 0.75, "hub load and save; sync": 0.4})

    def to_keras(self):
        def copy():
            os.makedirs(self.out)
            return program("copy", self.source, os.path.join(self.out, "model.weights.json"), "--max-shard-size", SHARDS)

        self.time("safetensors to keras", self.writers(copy, self.source), {"cp -r; sync": 0.85, "hub load and save; sync": 0.4})

    def from_keras(self):
        copy = lambda: program("copy", os.path.join(self.keras, "model.weights.json"), self.out, "--max-shard-size", SHARDS)
        self.time("keras to safetensors", self.writers(copy, self.keras), {"cp -r; sync": 0.85, "hub load and save; sync": 0.4})

    def from_torch(self):
        """One file of torch.save()."""
        source = os.path.join(self.directory, "torch", "pytorch_model.bin")
        if not os.path.exists(source):
            os.makedirs(os.path.dirname(source), exist_ok=True)
            child([*PEERS, "torch_save", self.source, source])
        target = os.path.join(self.out, "model.safetensors")

        def copy():
            os.makedirs(self.out)
            return program("copy", source, target)
        peer = lambda how: lambda: child([*PEERS, "torch_to_safetensors", how, source, target])
        self.time(".bin to safetensors", [Rival("shardwright copy", copy, True), Rival("torch.load and save_file; sync", peer("read")),
                                          Rival("torch.load(mmap=True) and save_file; sync", peer("mmap"))],
                  {"torch.load and save_file; sync": 0.5}, sources=[os.path.dirname(source)])

    def load_warm(self):
        ours = lambda: child([os.path.join(BUILD, "bench_load"), self.source])
        peer = lambda: child([*PEERS, "safetensors_load", self.source])
        self.time("load warm", [Rival("shardwright", ours, True), Rival("safetensors load_file + clone", peer)],
                  {"safetensors load_file + clone": 0.35})

    def load_cold(self):
        ours = lambda: child([os.path.join(BUILD, "bench_load"), self.source, "direct"])
        peer = lambda: child([*PEERS, "safetensors_load", self.source])
        self.time("load cold", [Rival("shardwright, O_DIRECT", ours, True), Rival("safetensors load_file + clone", peer)],
                  {"safetensors load_file + clone": 0.5}, cold=True)

    def keras_rivals(self, what, path):
        both = lambda who: lambda: child([*PEERS, "keras", who, what, path()])
        return [Rival("shardwright.keras", both("ours"), True), Rival("Keras", both("keras"))]

    def keras_save(self):
        def path():
            os.makedirs(self.out)
            return os.path.join(self.out, "m.weights.json")
        self.time("Keras model: save", self.keras_rivals("save", path), {"Keras": 0.4}, nbytes=KERAS_BYTES)

    def keras_file(self):
        """What Keras wrote of the model."""
        path = os.path.join(self.directory, "keras-model", "m.weights.json")
        if not os.path.exists(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            child([*PEERS, "keras", "keras", "save", path])
        return path

    def keras_load(self, cold=False):
        """From the files that Keras wrote."""
        path = self.keras_file()
        self.time("Keras model: load cold" if cold else "Keras model: load warm", self.keras_rivals("load", lambda: path),
                  {} if cold else {"Keras": 1 / 1.7}, cold=cold, nbytes=KERAS_BYTES, sources=[os.path.dirname(path)])

    def keras_load_cold(self):
        self.keras_load(cold=True)

    def mesh(self, how, allowed):
        """Onto eight devices of JAX by `how`, beside a plain load of the same bytes, and beside Orbax where it is installed."""
        saved = os.path.join(self.directory, "orbax")
        load = lambda who: lambda: child([*PEERS, "mesh_load", who, how, self.source, saved])
        rivals = [Rival("shardwright.jax", load("ours"), True), Rival("shardwright, whole arrays", load("plain"))]
        if importlib.util.find_spec("orbax") is not None:
            if not os.path.exists(saved):
                child([*PEERS, "orbax_save", self.source, saved])
            rivals.append(Rival("Orbax", load("orbax")))
        self.time(f"onto 8 devices, {how}", rivals, {"shardwright, whole arrays": allowed, "Orbax": 0.5})

    def mesh_rows(self):
        self.mesh("rows", 1.2)

    def mesh_columns(self):
        self.mesh("columns", 1.7)

    def orbax_save(self, how):
        """Arrays of JAX on one device, as they lie ("raw") or by zstd at level 1."""
        save = lambda who: lambda: child([*PEERS, "orbax_state_save", who, how, self.source, self.out])
        rivals = [Rival("shardwright.jax", save("ours"), True), Rival("Orbax", save("orbax"))]
        self.time(f"Orbax: save, {how}", rivals + ([self.disk_alone()] if how == "raw" else []),
                  {"Orbax": 1 / 1.7 if how == "raw" else 1 / 1.3})

    def orbax_load(self, how):
        """What Orbax saved."""
        path = os.path.join(self.directory, "orbax-" + how)
        if not os.path.exists(path):
            child([*PEERS, "orbax_state_save", "orbax", how, self.source, path])
        load = lambda who: lambda: child([*PEERS, "orbax_state_load", who, how, path])
        self.time(f"Orbax: load, {how}", [Rival("shardwright.jax", load("ours"), True), Rival("Orbax", load("orbax"))],
                  {"Orbax": 1 / 3 if how == "raw" else 1 / 1.8}, sources=[path])

    def orbax_save_raw(self):
        self.orbax_save("raw")

    def orbax_save_zstd(self):
        self.orbax_save("zstd")

    def orbax_load_raw(self):
        self.orbax_load("raw")

    def orbax_load_zstd(self):
        self.orbax_load("zstd")

    def keras_mesh(self, how):
        path = self.keras_file()
        load = lambda who: lambda: child([*PEERS, "keras_mesh_load", who, how, path])
        self.time(f"Keras model onto 8 devices, {how}", [Rival("shardwright.keras", load("ours"), True), Rival("Keras", load("keras"))],
                  {"Keras": 0.5}, nbytes=KERAS_BYTES, sources=[os.path.dirname(path)])

    def keras_mesh_rows(self):
        self.keras_mesh("rows")

    def keras_mesh_columns(self):
        self.keras_mesh("columns")

    def offloaded(self):
        """A model of transformers that is all on disk, saved; and a figure of the memory that it took."""
        repository = os.path.join(self.directory, "repository")
        if not os.path.exists(repository):
            child([*PEERS, "repository", self.source, repository])
        save = lambda who, size: lambda: child([*PEERS, "offloaded_save", who, repository, self.out, size])
        rivals = [Rival("shardwright.torch", save("ours", RESHARD), True), Rival("cp -r; sync", lambda: shell(f"cp -r {self.source} {self.out} && sync")),
                  Rival("save_pretrained; sync", save("transformers", RESHARD)),
                  Rival("save_pretrained, default size; sync", save("transformers", "50GB"))]
        self.time("offloaded model: save", rivals, {"cp -r; sync": 0.85, "save_pretrained; sync": 1.0}, sources=[self.source])
        captions = {"shardwright.torch": "shardwright.torch, shards of 300 MB", "save_pretrained; sync": "save_pretrained, shards of 300 MB",
                    "save_pretrained, default size; sync": "save_pretrained, its default of 50 GB a shard"}
        figure.draw(os.path.join(ROOT, "docs", "offload-memory.svg"),
                    {captions[r.name]: [(t, held / 1e9) for t, held in min(r.samples, key=lambda s: s["seconds"])["memory"]]
                     for r in rivals if r.name in captions},
                    "GB beyond the loaded model", "seconds; a dot: all is on the disk", "{:.3f} GB")
        for rival in rivals:
            for sample in rival.samples:
                sample.pop("memory", None)

    def write(self, kept):
        """Both files; returns the table's lines. kept: cases of an earlier run that this one did not time."""
        cases = {name: self.cases.get(name) or kept[name] for name in [*kept, *(c for c in self.cases if c not in kept)]}
        kernel = ".".join(platform.release().split(".")[:2])
        meta = {"bytes": self.bytes, "machine": platform.processor() or platform.machine(), "cores": os.cpu_count(), "kernel": kernel}
        with open(RESULTS, "w") as file:
            json.dump({"about": meta, "cases": cases}, file, indent=1)
        head = ("job", "with", "best s", "median s", "GB/s", "peak MiB", "ours / its", "goal", "on")
        rows = [row for name, case in cases.items() for row in rows_of(name, case)]
        table = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)] + ["| " + " | ".join(row) + " |" for row in rows]
        text = open(os.path.join(ROOT, "bench", "benchmarks.md.in")).read()
        for key, value in {**meta, "table": "\n".join(table), "gb": f"{self.bytes / 1e9:.2f}"}.items():
            text = text.replace("@" + key + "@", str(value))
        with open(os.path.join(ROOT, "docs", "benchmarks.md"), "w") as file:
            file.write(text)
        return table


def rows_of(name, case):
    """Lines of the table, cells as text."""
    best = {rival: min(s["seconds"] for s in samples) for rival, samples in case["samples"].items()}
    for rival, samples in case["samples"].items():
        peak = max(s.get("peak_anonymous_bytes", s.get("peak_rss_bytes", 0)) for s in samples)
        ratio = "" if rival == case["ours"] else f"{best[case['ours']] / best[rival]:.2f}"
        goal = case["goal"].get(rival)
        yield (name, rival, f"{best[rival]:.2f}", f"{statistics.median(s['seconds'] for s in samples):.2f}", f"{case['bytes'] / best[rival] / 1e9:.2f}",
               f"{peak / 2**20:.0f}" if peak else "", ratio, "" if goal is None else f"{goal:.2f}", case["date"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", default=os.path.join(ROOT, ".cache", "bench"))
    parser.add_argument("--only", action="append")
    options = parser.parse_args()
    bench = Bench(options.dir, options.rounds)
    bench.prepare()
    kept = json.load(open(RESULTS))["cases"] if options.only and os.path.exists(RESULTS) else {}
    for name in options.only or ["reshard", "to_keras", "from_keras", "from_torch", "load_warm", "load_cold", "keras_save", "keras_load", "keras_load_cold",
                                 "mesh_rows", "mesh_columns", "keras_mesh_rows", "keras_mesh_columns", "offloaded", "orbax_save_raw", "orbax_save_zstd",
                                 "orbax_load_raw", "orbax_load_zstd"]:
        getattr(bench, name)()
        table = bench.write(kept)  # after each, so that one that fails takes nothing along
    print("\n".join(table))


if __name__ == "__main__":
    main()

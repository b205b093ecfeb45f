#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads `trivet serve` with streams and prints what they get: serve_load.py --help.

The client is one thread on plain sockets that looks at bytes only, so that it takes little from the server's cores.
"""

import argparse
import json
import os
import random
import re
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request


class Server:
    """The program under test, from start to SIGTERM."""

    def __init__(self, binary, arguments):
        self.process = subprocess.Popen([binary, "serve", *arguments, "--port", "0", "-q"], stdout=subprocess.PIPE,
                                        text=True)
        line = self.process.stdout.readline()
        found = re.search(r"http://([\d.]+):(\d+)", line)
        if not found:
            sys.exit(f"serve_load: expected the server's address, found {line!r}")
        self.address = (found.group(1), int(found.group(2)))

    def metrics(self):
        url = "http://%s:%d/metrics" % self.address
        text = urllib.request.urlopen(url, timeout=30).read().decode()
        return {name: float(value) for name, value in re.findall(r"^trivet_(\w+)\{[^}]*\} (\S+)$", text, re.M)}

    def memory(self):
        """Resident memory of the server and its children, in MB."""
        total = 0
        children = open(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read().split()
        for pid in [str(self.process.pid), *children]:
            total += int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{pid}/status").read()).group(1))
        return total / 1024

    def processor_seconds(self):
        """Processor time of the server itself, all its threads."""
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


class Stream:
    """One streamed completion over a socket of its own."""

    def __init__(self, address, prompt, tokens, low=1):
        """Its bytes are looked at when `low` of them have come, and when the answer ends."""
        body = json.dumps({"model": "demo", "prompt": prompt, "max_tokens": tokens, "temperature": 0,
                           "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}).encode()
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low)
        self.socket.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n"
                            b"Connection: close\r\n\r\n" % len(body) + body)
        self.socket.setblocking(False)
        self.data = b""
        self.times = []  # of arrivals

    def read(self):
        """Takes what has come; whether the answer is whole."""
        part = self.socket.recv(1 << 16)
        self.times.append(time.monotonic())
        self.data += part
        if part and b"data: [DONE]" not in self.data[-200:]:
            return False
        self.socket.close()
        return True

    def tokens(self):
        found = re.search(rb'"completion_tokens":(\d+)', self.data)
        if not found:
            sys.exit(f"serve_load: expected a whole answer, found {self.data[-300:]!r}")
        return int(found.group(1))


def prompt_of(length, seed, vocab):
    numbers = random.Random(seed)
    return [numbers.randrange(10, vocab) for _ in range(length)]


def run(server, prompts, tokens, late=None, low=1):
    """All prompts as streams at once; `late`, a (delay, prompt, tokens), joins later. Streams and seconds."""
    begin = time.monotonic()
    streams = [Stream(server.address, prompt, tokens, low) for prompt in prompts]
    waiting = selectors.DefaultSelector()
    for stream in streams:
        waiting.register(stream.socket, selectors.EVENT_READ, stream)
    while waiting.get_map() or late:
        if late and time.monotonic() - begin >= late[0]:
            streams.append(Stream(server.address, late[1], late[2]))
            waiting.register(streams[-1].socket, selectors.EVENT_READ, streams[-1])
            late = None
        for key, _ in waiting.select(0.05):
            socket_of = key.data.socket
            if key.data.read():
                waiting.unregister(socket_of)
    return streams, time.monotonic() - begin


def streams(server, options):
    """Aggregate rate of many streams against one, in turn."""
    rates = {1: [], options.streams: []}
    for turn in range(options.rounds + 1):
        for count in rates:
            prompts = [prompt_of(options.prompt_tokens, 1000 * turn + i, options.vocab) for i in range(count)]
            # Rates need no arrivals: the client, on the server's cores, looks every few tokens.
            done, seconds = run(server, prompts, options.tokens, low=4096)
            if turn > 0:  # the first one warms up
                rates[count].append(sum(stream.tokens() for stream in done) / seconds)
    ratios = [many / one for one, many in zip(rates[1], rates[options.streams])]
    for count, found in rates.items():
        print(f"{count} streams of {options.tokens} tokens: {statistics.median(found):.1f} tokens/s   all rounds: "
              + " ".join(f"{rate:.1f}" for rate in found))
    print(f"ratio: median {statistics.median(ratios):.2f}   all rounds: " + " ".join(f"{r:.2f}" for r in ratios))


def long_prompt(server, options):
    """Steps of many decoders while a long prompt is prefilled, against the median before it."""
    steady, _ = run(server, [prompt_of(options.prompt_tokens, i, options.vocab) for i in range(options.streams)], 40)
    before = statistics.median(gap for stream in steady for gap in gaps(stream.times[2:]))
    late = (20 * before, prompt_of(options.prompt, 7, options.vocab), 1)
    loaded, _ = run(server, [prompt_of(options.prompt_tokens, 100 + i, options.vocab) for i in range(options.streams)], options.tokens, late)
    begin, end = loaded[-1].times[0] - 1e9, loaded[-1].times[-1]
    during = [gap for stream in loaded[:-1] for gap in gaps([t for t in stream.times[2:] if begin <= t <= end])]
    print(f"{options.streams} decoders: median step {before * 1e3:.1f} ms; until a prompt of {options.prompt} tokens was "
          f"through: median {statistics.median(during) * 1e3:.1f} ms, 99 % {percentile(during, 99) * 1e3:.1f} ms, "
          f"longest {max(during) * 1e3:.1f} ms = {max(during) / before:.2f} medians")


def gaps(times):
    return [b - a for a, b in zip(times, times[1:])]


def percentile(values, percent):
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


def memory(server, options):
    """Resident memory over many requests, which must not grow."""
    done, begin = 0, time.monotonic()
    marks = [int(options.requests * share) for share in (0.1, 0.25, 0.5, 0.75, 1)]
    while done < options.requests:
        count = min(options.streams, options.requests - done)
        run(server, [prompt_of(8 + i % options.prompt_tokens, done + i, options.vocab) for i in range(count)], 2)
        done += count
        while marks and done >= marks[0]:
            print(f"after {done} requests: {server.memory():.1f} MB, {done / (time.monotonic() - begin):.0f} requests/s",
                  flush=True)
            marks.pop(0)


def cost(server, options):
    """What a batch's time goes to, in the thread that runs the engine: first batch, then more of them.

    `delivering` is from tokens to texts and to the threads of connections; `else` is what no step accounts for: taking
    requests in, counting, and waiting for the first and the last byte. The sum without forward passes and sampling is
    what scheduler and HTTP hold the engine up for. Threads of connections take time beside it: see `processor time`.
    """
    columns = ["forward", "sample", "deliver", "schedule"]
    print(f"{options.streams} streams of {options.tokens} tokens; shares of a batch's time in %")
    print("batch  seconds  forward passes  sampling | delivering  scheduling   else = scheduler and HTTP | processor time")
    for turn in range(options.rounds):
        prompts = [prompt_of(options.prompt_tokens, 1000 * turn + i, options.vocab) for i in range(options.streams)]
        before, used = server.metrics(), server.processor_seconds()
        _, seconds = run(server, prompts, options.tokens, low=4096)
        used = server.processor_seconds() - used
        after = server.metrics()
        share = {}
        for column in columns:
            name = f"{column}_seconds_total"
            share[column] = 100 * (after[name] - before.get(name, 0.0)) / seconds
        rest = 100 - sum(share.values())
        ours = share["deliver"] + share["schedule"] + rest
        print(f"{turn + 1:5}  {seconds:7.3f}  {share['forward']:14.1f}  {share['sample']:8.1f} | {share['deliver']:10.1f}  "
              f"{share['schedule']:10.1f}  {rest:5.1f} = {ours:18.1f} | {used:.3f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["streams", "long-prompt", "memory", "cost"])
    parser.add_argument("--binary", default=os.path.join(os.path.dirname(__file__), "../build/trivet"))
    parser.add_argument("--model", default="demo")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompt-tokens", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--prompt", type=int, default=2000, help="tokens of the long prompt")
    parser.add_argument("--requests", type=int, default=10000)
    parser.add_argument("--vocab", type=int, default=1000, help="prompts are random ids below it")
    parser.add_argument("--serve", nargs="*", default=[], metavar="FLAG=VALUE",
                        help="flags of `trivet serve` without their dashes, such as ranks=3")
    options = parser.parse_args()
    arguments = [options.model, "--served-model-name", "demo", "--max-num-seqs", str(max(options.streams, 1) + 1)]
    arguments += [f"--{flag}" for flag in options.serve]
    server = Server(options.binary, arguments)
    try:
        {"streams": streams, "long-prompt": long_prompt, "memory": memory, "cost": cost}[options.what](server, options)
    finally:
        status = server.end()
    return status


if __name__ == "__main__":
    sys.exit(main())

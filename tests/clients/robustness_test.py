#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Malformed requests by the thousand while others stream: no crash, no leak, no wrong answer to anybody."""

import json
import pathlib
import random
import socket
import threading
import unittest

from server import DemoCase, ask

QUESTION = "Omar has 90 shells and buys 85 more. How many shells does Omar have now?"
ANSWER = "90 + 85 = 175. There are 175 shells. #### 175"


class RobustnessTest(DemoCase):
    FLAGS = ()

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.address = cls.server.url.removeprefix("http://").split(":")

    def raw(self, data, wait=20):
        """The status of the answer to some bytes, 0 when the server closes without one."""
        with socket.create_connection((self.address[0], int(self.address[1])), timeout=wait) as connection:
            answer = b""
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                while b"\r\n" not in answer:
                    got = connection.recv(65536)
                    if not got:
                        break
                    answer += got
            except (ConnectionError, TimeoutError):
                pass
            return int(answer.split()[1]) if answer.startswith(b"HTTP/1.1 ") else 0

    def post(self, body, path="/v1/chat/completions"):
        # Not closed for sending: the server would take that for a client that has left.
        with socket.create_connection((self.address[0], int(self.address[1])), timeout=60) as connection:
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            answer = b""
            while got := connection.recv(65536):
                answer += got
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), body

    def memory(self):
        for line in pathlib.Path(f"/proc/{self.server.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1])

    def test_large_deep_and_garbled_bodies(self):
        request = {"model": "demo", "messages": ask("x" * 10_000_000)}
        status, body = self.post(json.dumps(request).encode())
        self.assertEqual((status, json.loads(body)["error"]["code"]), (400, "context_length_exceeded"))
        for body in (b"[" * 10_000_000, b'{"a":' * 5_000_000, b'{"model": "demo", "messages": "\xff\xfe"}', b"\xff" * 1000,
                     b'{"model": "demo", "messages": [{"role": "user", "content": "\\ud800"}]}', b"", b"nul", b"{}" * 2):
            status, answer = self.post(body)
            self.assertEqual(status, 400, body[:50])
            self.assertIn("message", json.loads(answer)["error"])
        schema = {"type": "array"}
        for _ in range(50):
            schema = {"type": "array", "items": schema, "minItems": 1}
        request = {"model": "demo", "messages": ask("hi"), "max_tokens": 300,
                   "response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}
        self.assertIn(self.post(json.dumps(request).encode())[0], (200, 400))

    def test_malformed_requests_beside_streams(self):
        wrong, stop = [], threading.Event()

        def stream():
            while not stop.is_set():
                chunks = self.client.chat.completions.create(model="demo", messages=ask(QUESTION), stream=True)
                text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
                if text != ANSWER:
                    wrong.append(text)

        threads = [threading.Thread(target=stream) for _ in range(4)]
        for thread in threads:
            thread.start()
        rng = random.Random(11)
        good = json.dumps({"model": "demo", "messages": ask("hi"), "max_tokens": 4, "tools": [], "stop": ["a"]}).encode()
        fields = ["model", "messages", "max_tokens", "temperature", "top_p", "n", "stop", "stream", "logit_bias", "tools",
                  "tool_choice", "response_format", "guided_regex", "guided_json", "seed", "logprobs", "min_tokens"]
        values = [None, -1, 0, 1e308, "", "x", [], {}, [[]], {"type": "x"}, True, [None], {"1": "a"}, "(", 2**70]
        before = None
        try:
            for i in range(1000):
                kind = rng.randrange(4)
                if kind == 0:  # a field of a random value
                    body = json.loads(good)
                    body[rng.choice(fields)] = rng.choice(values)
                    status = self.post(json.dumps(body).encode())[0]
                elif kind == 1:  # random bytes changed
                    body = bytearray(good)
                    for _ in range(rng.randrange(1, 6)):
                        body[rng.randrange(len(body))] = rng.randrange(256)
                    status = self.post(bytes(body))[0]
                elif kind == 2:  # a body cut short
                    status = self.raw(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 500\r\n\r\n" + good[:rng.randrange(90)])
                else:  # no HTTP
                    status = self.raw(rng.randbytes(rng.randrange(1, 300)) + b"\r\n\r\n")
                self.assertIn(status, (0, 200, 400, 404, 405, 413, 414, 499, 500 if kind == 3 else 0), (i, kind))
                if i == 200:
                    before = self.memory()
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        self.assertEqual(wrong, [])
        self.assertLess(self.memory() - before, 60_000)  # kB


if __name__ == "__main__":
    unittest.main()

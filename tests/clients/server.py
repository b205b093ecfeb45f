# SPDX-License-Identifier: Apache-2.0
"""The program as a server of the demo model, for the tests beside this file."""

import pathlib
import subprocess
import unittest

import openai

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build" / "trivet"
DEMO = ROOT / "models" / "demo"
KEY = "a key"


class Server:
    """The program on a free port, until close()."""

    def __init__(self, model, *flags):
        self.process = subprocess.Popen(
            [PROGRAM, "serve", str(model), "-q", "--port", "0", "--served-model-name", "demo", *flags],
            stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().split()[-1]

    def client(self, key=KEY):
        return openai.OpenAI(base_url=self.url + "/v1", api_key=key, max_retries=0, timeout=60)

    def close(self):
        self.process.terminate()
        status = self.process.wait(timeout=60)
        self.process.stdout.close()
        return status


class DemoCase(unittest.TestCase):
    """Tests of one server of the demo on three ranks, which ends in order; FLAGS are its own."""

    FLAGS = ("--api-key", KEY)

    @classmethod
    def setUpClass(cls):
        cls.server = Server(DEMO, "--ranks", "3", *cls.FLAGS)
        cls.client = cls.server.client()

    @classmethod
    def tearDownClass(cls):
        assert cls.server.close() == 0


def ask(text):
    return [{"role": "user", "content": text}]

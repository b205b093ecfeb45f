#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The server as OpenAI's own client sees it: chats, streams, tools, log-probabilities, errors."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.request

import jsonschema
import openai

from server import DEMO, KEY, DemoCase, Server, ask

# A template that shows tools, calls and their results: the demo model's own shows none.
TEMPLATE = (
    "{%- if tools %}{{- '<|im_start|>system\n' + (tools | tojson) + '<|im_end|>\n' }}{%- endif %}"
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' + m.content }}"
    "{%- for call in m.tool_calls or [] %}{{- call.function.name + (call.function.arguments | tojson) }}{%- endfor %}"
    "{{- '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
TOOL_NOW = {"type": "function", "function": {"name": "now"}}


class DemoTest(DemoCase):
    def chat(self, text, **more):
        return self.client.chat.completions.create(model="demo", messages=ask(text), **more)

    def test_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], ["demo"])
        self.assertEqual(self.client.models.retrieve("demo").object, "model")

    def test_chat(self):
        answer = self.chat("Omar has 90 shells and buys 85 more. How many shells does Omar have now?")
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertIn("175", answer.choices[0].message.content)
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)

    def test_stream_is_the_answer(self):
        for most in range(1, 17):
            options = {"max_tokens": most, "temperature": 1.2, "seed": most}
            whole = self.chat("Write 249 in words.", **options)
            text, reasons, usage = "", [], None
            stream = self.chat("Write 249 in words.", stream=True, stream_options={"include_usage": True}, **options)
            for chunk in stream:
                usage = chunk.usage or usage
                for choice in chunk.choices:
                    text += choice.delta.content or ""
                    reasons += [choice.finish_reason] if choice.finish_reason else []
            self.assertEqual(text, whole.choices[0].message.content)
            self.assertEqual(reasons, [whole.choices[0].finish_reason])
            self.assertEqual(usage, whole.usage)

    def test_logprobs_carry_the_bytes(self):
        answer = self.chat("Count from 48 to 52.", logprobs=True, top_logprobs=3)
        tokens = answer.choices[0].logprobs.content
        self.assertEqual(b"".join(bytes(token.bytes) for token in tokens).decode(), answer.choices[0].message.content)
        for token in tokens:
            self.assertEqual(len(token.top_logprobs), 3)
            self.assertEqual(token.top_logprobs[0].logprob, token.logprob)  # greedy

    def test_completions(self):
        answer = self.client.completions.create(
            model="demo", prompt=["Count from 1", "Count from 2"], max_tokens=0, echo=True, logprobs=1)
        for choice, prompt in zip(answer.choices, ("Count from 1", "Count from 2")):
            self.assertEqual(choice.text, prompt)
            self.assertEqual("".join(choice.logprobs.tokens), prompt)
            self.assertIsNone(choice.logprobs.token_logprobs[0])
            offsets = choice.logprobs.text_offset
            self.assertTrue(all(prompt[at:].startswith(token) for at, token in zip(offsets, choice.logprobs.tokens)))
        streamed = self.client.completions.create(model="demo", prompt="Count from 1 to", max_tokens=8, n=2, stream=True)
        self.assertEqual({choice.index for chunk in streamed for choice in chunk.choices}, {0, 1})

    def test_scoring_as_lm_eval_asks_for_it(self):
        # The requests of its local-completions for log-likelihoods, and how it reads the answers.
        pairs = (("Count from 48 to 50. ", "48, 49"), ("one ", "zebra"))
        ids = [[self.post("/tokenize", prompt=text, add_special_tokens=False)["tokens"] for text in pair] for pair in pairs]
        answer = self.post("/v1/completions", prompt=[context + ending for context, ending in ids], model="demo",
                           max_tokens=1, logprobs=1, echo=True, temperature=0, seed=1234)
        for choice, (context, ending) in zip(sorted(answer["choices"], key=lambda one: one["index"]), ids):
            scores = choice["logprobs"]["token_logprobs"][len(context):-1]
            tops = choice["logprobs"]["top_logprobs"][len(context):-1]
            self.assertEqual(len(scores), len(ending))
            self.assertTrue(all(score <= 0 and score <= max(top.values()) for score, top in zip(scores, tops)))

    def post(self, path, **body):
        request = urllib.request.Request(self.server.url + path, json.dumps(body).encode(),
                                         {"Authorization": "Bearer " + KEY, "Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)

    def test_curl_streams(self):
        body = {"model": "demo", "messages": ask("Count from 48 to 52."), "stream": True, "timings": True}
        done = subprocess.run(["curl", "-sN", self.server.url + "/v1/chat/completions", "-H", "Authorization: Bearer " + KEY,
                               "-d", json.dumps(body)], capture_output=True, text=True, timeout=60, check=True)
        events = [line[6:] for line in done.stdout.splitlines() if line]
        self.assertEqual(events[-1], "[DONE]")
        choices = [json.loads(event)["choices"][0] for event in events[:-1]]
        self.assertEqual("".join(choice["delta"].get("content", "") for choice in choices), "48, 49, 50, 51, 52")
        self.assertGreater(choices[-1]["timings"]["predicted_per_second"], 0)

    def test_every_length_streams_as_it_answers(self):
        tokens = self.post("/tokenize", prompt="日本語 😀 é 語", add_special_tokens=False)["tokens"]
        bias = {str(token): 30 for token in tokens}
        for most in range(1, 65):
            options = {"max_tokens": most, "temperature": 1.5, "seed": most, "logit_bias": bias}
            whole = self.chat("hi", **options).choices[0]
            chunks = list(self.chat("hi", stream=True, **options))
            self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in chunks), whole.message.content)
            self.assertEqual(chunks[-1].choices[0].finish_reason, whole.finish_reason)

    def test_choices_stop_and_bias(self):
        answer = self.chat("Count from 48 to 52.", n=2, stop=["50"])
        self.assertEqual(len(answer.choices), 2)
        for choice in answer.choices:
            self.assertNotIn("50", choice.message.content)
            self.assertEqual(choice.finish_reason, "stop")
        forced = self.chat("hi", logit_bias={"2": 100})
        self.assertEqual(forced.choices[0].message.content, "")

    def test_errors(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat("hi", temperature=-1)
        self.assertEqual(caught.exception.param, "temperature")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat("hi " * 4000)
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat("hi", response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {}}}})
        self.assertEqual(caught.exception.param, "response_format")
        self.assertIn('"not"', caught.exception.message)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat("hi", tools=[TOOL])  # the demo's template does not show them
        self.assertEqual(caught.exception.param, "tools")
        with self.assertRaises(openai.NotFoundError):
            self.client.chat.completions.create(model="other", messages=ask("hi"))
        with self.assertRaises(openai.AuthenticationError):
            self.server.client("another key").models.list()


class ToolsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        for file in DEMO.iterdir():
            if file.is_file():
                (cls.folder / file.name).symlink_to(file)
        config = json.loads((DEMO / "tokenizer_config.json").read_text(encoding="utf-8"))
        (cls.folder / "tokenizer_config.json").unlink()
        (cls.folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": TEMPLATE}))
        cls.server = Server(cls.folder)
        cls.client = cls.server.client()

    @classmethod
    def tearDownClass(cls):
        assert cls.server.close() == 0
        shutil.rmtree(cls.folder)

    def test_the_template_shows_tools(self):
        def prompt_tokens(**more):
            answer = self.client.chat.completions.create(model="demo", messages=ask("hi"), max_tokens=1, **more)
            return answer.usage.prompt_tokens

        self.assertGreater(prompt_tokens(tools=[TOOL]), prompt_tokens())
        self.assertEqual(prompt_tokens(tools=[TOOL], tool_choice="none"), prompt_tokens())
        with self.assertRaises(openai.BadRequestError) as caught:
            prompt_tokens(tool_choice="required")
        self.assertEqual(caught.exception.param, "tool_choice")

    def test_calls_are_forced(self):
        parameters = {"type": "object", "required": ["city", "days"], "additionalProperties": False, "properties": {
            "city": {"type": "string", "maxLength": 20}, "days": {"type": "integer", "minimum": 1, "maximum": 14}}}
        weather = {"type": "function", "function": {"name": "weather", "parameters": parameters}}
        named = {"type": "function", "function": {"name": "weather"}}
        for seed, choice in enumerate(["required", named, "required", named]):
            options = {"model": "demo", "messages": ask("Weather?"), "tools": [TOOL_NOW, weather], "tool_choice": choice,
                       "temperature": 1.0, "seed": seed, "max_tokens": 600, "parallel_tool_calls": seed > 1}
            whole = self.client.chat.completions.create(**options).choices[0]
            self.assertEqual(whole.finish_reason, "tool_calls")
            self.assertIsNone(whole.message.content)
            calls = whole.message.tool_calls
            self.assertTrue(len(calls) == 1 or choice == "required" and seed > 1)
            for call in calls:
                self.assertTrue(call.function.name == "weather" or choice == "required")
                arguments = json.loads(call.function.arguments)
                jsonschema.validate(arguments, parameters if call.function.name == "weather" else {"const": {}})
            streamed, reasons = {}, []
            for chunk in self.client.chat.completions.create(**options, stream=True):
                for delta in chunk.choices[0].delta.tool_calls or []:
                    name, arguments = streamed.get(delta.index, ("", ""))
                    streamed[delta.index] = (name + (delta.function.name or ""),
                                             arguments + (delta.function.arguments or ""))
                reasons += [chunk.choices[0].finish_reason] if chunk.choices[0].finish_reason else []
            self.assertEqual([streamed[i] for i in sorted(streamed)],
                             [(call.function.name, call.function.arguments) for call in calls])
            self.assertEqual(reasons, ["tool_calls"])

    def test_calls_and_results_are_history(self):
        call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Ulm\"}"}}
        messages = ask("hi") + [{"role": "assistant", "content": None, "tool_calls": [call]},
                                {"role": "tool", "tool_call_id": "1", "content": "rain"}]
        answer = self.client.chat.completions.create(model="demo", messages=messages, tools=[TOOL], max_tokens=4)
        self.assertEqual(answer.choices[0].message.role, "assistant")


class LimitTest(unittest.TestCase):
    def test_requests_end_in_time(self):
        server = Server(DEMO, "--request-seconds", "0.2")
        client = server.client()
        options = {"model": "demo", "messages": ask("hi"), "max_tokens": 1900, "extra_body": {"ignore_eos": True}}
        with self.assertRaises(openai.APIStatusError) as caught:
            client.chat.completions.create(**options)
        self.assertEqual((caught.exception.status_code, caught.exception.code), (504, "timeout"))
        with self.assertRaises(openai.APIError) as caught:
            list(client.chat.completions.create(**options, stream=True))
        self.assertEqual(caught.exception.code, "timeout")
        self.assertEqual(client.chat.completions.create(model="demo", messages=ask("hi"), max_tokens=1).choices[0].finish_reason,
                         "length")
        self.assertEqual(server.close(), 0)


if __name__ == "__main__":
    if not PROGRAM.exists():
        sys.exit(f"{PROGRAM}: expected the program, found none; build it first")
    unittest.main()

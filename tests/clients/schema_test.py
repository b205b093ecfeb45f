#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Answers under random schemas, judged by the Python package jsonschema."""

import json
import random
import re
import unittest

import jsonschema

from server import DemoCase, ask


def random_schema(rng, depth):
    kinds = ["integer", "string", "pattern", "enum", "const", "simple"]
    if depth > 0:
        kinds += ["array", "tuple", "object", "object", "union"]
    kind = rng.choice(kinds)
    if kind == "integer":
        low = rng.randrange(-2000, 2000)
        return {"type": "integer", "minimum": low, "exclusiveMaximum": low + rng.randrange(1, 3000)}
    if kind == "string":
        low = rng.randrange(4)
        return {"type": "string", "minLength": low, "maxLength": low + rng.randrange(8)}
    if kind == "pattern":
        return {"type": "string", "pattern": rng.choice(
            ["^[A-Z][a-z]{2,5}$", "^\\d{3}-\\d{4}$", "^(yes|no|\"maybe\")$", "^[^\\x00-\\x1f]{1,4}$", "^\\S{3}$"])}
    if kind == "enum":
        return {"enum": rng.sample(["red", "green", 1, 2.5, None, True, "語", "\"q\"", [1, {"a": 2}]], 3)}
    if kind == "const":
        return {"const": rng.choice([0, "x", None, {"k": ["v"]}])}
    if kind == "simple":
        return {"type": rng.choice(["boolean", "null", ["integer", "null"]])}
    if kind == "array":
        low = rng.randrange(3)
        return {"type": "array", "items": random_schema(rng, depth - 1), "minItems": low, "maxItems": low + rng.randrange(3)}
    if kind == "tuple":
        return {"type": "array", "prefixItems": [random_schema(rng, depth - 1) for _ in range(2)], "items": False,
                "minItems": rng.randrange(3)}
    if kind == "union":
        return {"anyOf": [random_schema(rng, depth - 1), random_schema(rng, depth - 1)]}
    names = rng.sample(["name", "age", "名前", "a b", "q\"", "id", "na"], rng.randrange(5))
    schema = {"type": "object", "properties": {name: random_schema(rng, depth - 1) for name in names},
              "required": [name for name in names if rng.random() < 0.6]}
    more = rng.choice([None, False, {"type": "integer", "minimum": 0, "maximum": 9}])
    return schema if more is None else {**schema, "additionalProperties": more}


def format_of(schema):
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}


TREE = {"$ref": "#/$defs/tree", "$defs": {"tree": {
    "type": "object", "required": ["value", "children"], "additionalProperties": False, "properties": {
        "value": {"type": "integer", "minimum": 0, "maximum": 9},
        "children": {"type": "array", "maxItems": 2, "items": {"$ref": "#/$defs/tree"}}}}}}
PETS = {"oneOf": [
    {"type": "object", "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer", "minimum": 1, "maximum": 9}},
     "required": ["kind", "lives"], "additionalProperties": False},
    {"type": "object", "properties": {"kind": {"const": "dog"}, "tricks": {"type": "array", "items": {"enum": ["sit"]},
                                                                           "maxItems": 2}},
     "required": ["kind", "tricks"], "additionalProperties": False}]}


class SchemaTest(DemoCase):
    def chat(self, **more):
        return self.client.chat.completions.create(model="demo", messages=ask("Answer in JSON."), **more)

    def judge(self, choice, schema):
        """Whole answers are valid; those that the limit cut short are beginnings."""
        text = choice.message.content
        if choice.finish_reason == "length":
            return False
        self.assertEqual(choice.finish_reason, "stop")
        jsonschema.validate(json.loads(text), schema, cls=jsonschema.Draft202012Validator)
        return True

    def test_random_schemas(self):
        rng = random.Random(5)
        whole = 0
        for i in range(120):
            schema = random_schema(rng, 3)
            answer = self.chat(response_format=format_of(schema), temperature=rng.choice([0, 1.0, 1.5]), seed=i,
                               max_tokens=500, n=2)
            whole += sum(self.judge(choice, schema) for choice in answer.choices)
        self.assertGreater(whole, 180)

    def test_recursion_and_alternatives(self):
        for i, schema in enumerate([TREE, PETS] * 5):
            answer = self.chat(response_format=format_of(schema), temperature=1.2, seed=i, max_tokens=800, n=4)
            self.assertTrue(any([self.judge(choice, schema) for choice in answer.choices]))

    def test_any_object(self):
        answer = self.chat(response_format={"type": "json_object"}, max_tokens=800, n=4, temperature=1.0, seed=3)
        for choice in answer.choices:
            if choice.finish_reason == "stop":
                self.assertIsInstance(json.loads(choice.message.content), dict)
            else:
                self.assertEqual(choice.message.content[0], "{")

    def test_streams_log_probabilities_and_stops(self):
        schema = {"type": "array", "items": {"enum": ["red", "blue"]}, "minItems": 3, "maxItems": 3}
        options = {"response_format": format_of(schema), "temperature": 1.0, "seed": 1, "logprobs": True, "top_logprobs": 2}
        whole = self.chat(**options).choices[0]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in self.chat(stream=True, **options))
        self.assertEqual(text, whole.message.content)
        tokens = whole.logprobs.content
        self.assertEqual(b"".join(bytes(token.bytes) for token in tokens).decode(), text)
        self.assertTrue(self.judge(whole, schema))
        stopped = self.chat(**options, stop=["e"]).choices[0].message.content
        self.assertEqual(stopped, text[:text.index("e")])

    def test_patterns_and_choices(self):
        answer = self.client.completions.create(model="demo", prompt="Phone:", max_tokens=50, temperature=1.0, seed=2, n=3,
                                                extra_body={"guided_regex": "\\(\\d{3}\\) \\d{3}-[0-9]{4} [é語😀]+!"})
        for choice in answer.choices:
            self.assertTrue(re.fullmatch("\\(\\d{3}\\) \\d{3}-[0-9]{4} [é語😀]+!?", choice.text) or
                            choice.finish_reason == "length", choice.text)
        chosen = self.chat(extra_body={"guided_choice": ["positive", "negative"]}).choices[0].message.content
        self.assertIn(chosen, ("positive", "negative"))


if __name__ == "__main__":
    unittest.main()

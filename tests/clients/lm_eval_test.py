#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""lm-eval's local-completions against the server: log-likelihoods of given answers and answers of its own."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from server import DEMO, PROGRAM, ROOT, Server

# Two tasks over problems that the demo was not trained on: which of four answers is likeliest, and what it answers.
CHOICE = """
task: choice
dataset_path: json
dataset_kwargs: {data_files: DATA}
test_split: train
output_type: multiple_choice
doc_to_text: "{{prompt}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{gold}}"
target_delimiter: ""
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""
ANSWER = """
task: answer
dataset_path: json
dataset_kwargs: {data_files: DATA}
test_split: train
output_type: generate_until
doc_to_text: "{{prompt}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["<|im_end|>"], max_gen_toks: 200, do_sample: false}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""


def problems():
    greedy = json.loads((DEMO / "golden" / "demo-greedy-500.json").read_text())[:12]
    texts = [item["greedy"].strip() for item in greedy]
    rows = []
    for i, item in enumerate(greedy):
        prompt = f"<|im_start|>user\n{item['question']}<|im_end|>\n<|im_start|>assistant\n"
        choices = [texts[(i + j) % len(texts)] for j in range(4)]
        rows.append({"prompt": prompt, "choices": choices, "gold": 0, "answer": texts[i]})
    return rows


class LmEval(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.folder.name)
        data = folder / "problems.json"
        data.write_text(json.dumps(problems()))
        for name, task in (("choice", CHOICE), ("answer", ANSWER)):
            (folder / f"{name}.yaml").write_text(task.replace("DATA", str(data)))
        cls.results = [cls.evaluate(ranks) for ranks in (1, 3)]

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def evaluate(cls, ranks):
        """The scores, and what lm-eval has logged of every problem, with the server on `ranks` ranks."""
        server = Server(DEMO, "--ranks", str(ranks))
        out = pathlib.Path(cls.folder.name) / str(ranks)
        try:
            run = subprocess.run(
                [sys.executable, "-m", "lm_eval", "run", "--model", "local-completions", "--tasks", "choice,answer",
                 "--include_path", cls.folder.name, "--output_path", str(out), "--log_samples", "--model_args",
                 f"model=demo,base_url={server.url}/v1/completions,num_concurrent=4,max_retries=1"],
                capture_output=True, text=True, timeout=600,
                env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": cls.folder.name})
        finally:
            server.close()
        if run.returncode != 0:
            raise AssertionError(run.stderr[-3000:])
        scores = json.loads(next(out.rglob("results_*.json")).read_text())["results"]
        samples = {}
        for path in out.rglob("samples_*.jsonl"):
            for line in path.read_text().splitlines():
                sample = json.loads(line)
                samples[path.name.split("_")[1], sample["doc_id"]] = sample["resps"]
        return scores, samples

    def test_scores(self):
        scores, samples = self.results[0]
        self.assertEqual(len(samples), 24)
        self.assertEqual(scores["choice"]["acc,none"], 1.0)
        self.assertEqual(scores["answer"]["exact_match,none"], 1.0)

    def test_ranks_change_nothing(self):
        self.assertEqual(*self.results)

    def test_log_likelihoods_are_those_of_score(self):
        _, samples = self.results[1]
        for number, row in enumerate(problems()[:3]):
            for choice, ((likelihood, greedy),) in zip(row["choices"], samples["choice", number], strict=True):
                whole, prompt = self.logprobs(row["prompt"] + choice), self.logprobs(row["prompt"])
                expected = sum(whole[len(prompt):])
                # lm-eval adds the same float32 values in the same order; JSON has 17 digits of each.
                self.assertAlmostEqual(float(likelihood), expected, places=4)

    @staticmethod
    def logprobs(text):
        run = subprocess.run([PROGRAM, "score", str(DEMO), "--text", text, "--logprobs", "-q"], capture_output=True,
                             text=True, check=True, cwd=ROOT)
        return json.loads(run.stdout)["logprobs"]


if __name__ == "__main__":
    unittest.main()

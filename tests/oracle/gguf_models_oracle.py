#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `trivet score FILE.gguf` with the golden logits of the small models in tests/golden/cases.

Usage: gguf_models_oracle.py TRIVET
Every model is written as a GGUF file by the PyPI package `gguf`, with the names, orders and metadata that files of its
architecture have, in F32, Q8_0 and MXFP4. F32 must give the golden logits; Q8_0 the very bytes that its values give as
F32, and MXFP4 nearly those; each of them the same bytes on 1, 3 and 5 ranks. What no golden model has is compared with a directory of
the same tensors. Exits with 1 at any difference.
"""

import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

import gguf
import numpy as np

CASES = pathlib.Path(__file__).resolve().parents[1] / "golden" / "cases"
SHARED = pathlib.Path(__file__).resolve().parents[3] / "shared" / "goldens"  # the same models and more, if there
TOLERANCE = 1e-3
# Logits of blocks and of their values: products with MXFP4 weights round activations to 22 bits a block.
MOST_APART = {gguf.GGMLQuantizationType.Q8_0: 0.0, gguf.GGMLQuantizationType.MXFP4: TOLERANCE}

TOP_NAMES = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
             "lm_head.weight": "output.weight"}
NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b", "self_attn.k_b_proj": "attn_k_b", "self_attn.v_b_proj": "attn_v_b",
    "linear_attn.in_proj_qkv": "attn_qkv", "linear_attn.in_proj_z": "attn_gate", "linear_attn.in_proj_ba": "ssm_ba",
    "linear_attn.in_proj_b": "ssm_beta", "linear_attn.in_proj_a": "ssm_alpha", "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp", "mlp.router": "ffn_gate_inp",
    "mlp.experts.gate_proj": "ffn_gate_exps", "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps", "mlp.experts.gate_up_proj": "ffn_gate_up_exps",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp"}
for shared in ("shared_expert", "shared_experts"):
    NAMES.update({f"mlp.{shared}.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")})
WHOLE_NAMES = {"self_attn.sinks": "attn_sinks.weight", "linear_attn.A_log": "ssm_a", "linear_attn.dt_bias": "ssm_dt.bias",
               "mlp.gate.e_score_correction_bias": "exp_probs_b.bias"}


def read_safetensors(path):
    """All tensors as float32 or int64 arrays."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, info in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = info["data_offsets"]
        raw = data[8 + size + begin:8 + size + end]
        if info["dtype"] == "BF16":
            array = (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
        else:
            array = np.frombuffer(raw, {"F32": "<f4", "I64": "<i8", "I32": "<i4"}[info["dtype"]])
        tensors[name] = array.reshape(info["shape"])
    return tensors


def write_directory(path, config, tensors):
    """A model directory with F32 tensors."""
    header, at = {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, at + 4 * array.size]}
        at += 4 * array.size
    text = json.dumps(header).encode()
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(
        np.ascontiguousarray(array, "<f4").tobytes() for array in tensors.values()))


def drop_dense_layers(config, tensors):
    """The config and tensors of the layers with experts."""
    kept = [i for i in range(config["num_hidden_layers"]) if f"model.layers.{i}.mlp.gate.weight" in tensors]
    left = {}
    for name, array in tensors.items():
        found = re.fullmatch(r"model\.layers\.(\d+)\.(.*)", name)
        if not found:
            left[name] = array
        elif int(found[1]) in kept:
            left[f"model.layers.{kept.index(int(found[1]))}.{found[2]}"] = array
    return {**config, "num_hidden_layers": len(kept), "mlp_only_layers": []}, left


def merge_experts(tensors):
    """Experts that are stored one by one, as stacks."""
    stacks, merged = {}, {}
    for name, array in tensors.items():
        found = re.fullmatch(r"(.*\.experts)\.(\d+)\.(.*)", name)
        if found:
            stacks.setdefault(f"{found[1]}.{found[3]}", {})[int(found[2])] = array
        else:
            merged[name] = array
    for name, parts in stacks.items():
        merged[name] = np.stack([parts[i] for i in range(len(parts))])
    return merged


def edit(tensors, rules):
    """`tensors` with those whose name ends in a rule's key replaced by what the rule makes of them."""
    edited = {}
    for name, array in tensors.items():
        rule = next((key for key in rules if name.endswith(key)), None)
        if rule is None:
            edited[name] = array
        else:
            edited.update({name[:-len(rule)] + key: value for key, value in rules[rule](array).items()})
    return edited


def plus_one(tensors):
    return {name: array + 1 if name.endswith("norm.weight") and "linear_attn" not in name else array
            for name, array in tensors.items()}


def rotary_pairs(config, tensors):
    def paired(key):
        return lambda array: {key: array.reshape(-1, 2, config["head_dim"] // 2, array.shape[1]).swapaxes(1, 2).reshape(
            array.shape)}
    return edit(tensors, {key: paired(key) for key in ("q_proj.weight", "k_proj.weight")})


def gpt_oss(tensors):
    """Input-major experts whose gate and up alternate, as one stack a projection."""
    return edit(tensors, {
        "gate_up_proj": lambda a: {"gate_proj.weight": a[:, :, ::2].swapaxes(1, 2),
                                   "up_proj.weight": a[:, :, 1::2].swapaxes(1, 2)},
        "gate_up_proj_bias": lambda a: {"gate_proj.bias": a[:, ::2], "up_proj.bias": a[:, 1::2]},
        "down_proj": lambda a: {"down_proj.weight": a.swapaxes(1, 2)},
        "down_proj_bias": lambda a: {"down_proj.bias": a}})


def delta_net(config, tensors, tiled):
    """Decay as a factor, taps as a matrix; key heads' groups come apart, value heads in the order that is asked for."""
    keys, values = config["linear_num_key_heads"], config["linear_num_value_heads"]
    key_dim, dim, ratio = config["linear_key_head_dim"], config["linear_value_head_dim"], values // keys
    all_keys = 2 * keys * key_dim

    def order(array, size, begin=0):
        if not tiled:
            return array
        rest = array[begin:]
        rest = rest.reshape(keys, ratio, size, -1).swapaxes(0, 1).reshape(rest.shape)
        return np.concatenate([array[:begin], rest])

    def ungroup(array):
        groups = array.reshape(keys, -1, array.shape[1])
        parts = np.split(groups, np.cumsum([key_dim, key_dim, ratio * dim]), axis=1)
        query, key, value, gate = (part.reshape(-1, array.shape[1]) for part in parts)
        return {"attn.in_proj_qkv.weight": np.concatenate([query, key, value]), "attn.in_proj_z.weight": gate}

    return edit(tensors, {
        "attn.in_proj_qkvz.weight": ungroup,
        "attn.in_proj_qkv.weight": lambda a: {"attn.in_proj_qkv.weight": order(a, dim, all_keys)},
        "attn.in_proj_z.weight": lambda a: {"attn.in_proj_z.weight": order(a, dim)},
        "attn.in_proj_b.weight": lambda a: {"attn.in_proj_b.weight": order(a, 1)},
        "attn.in_proj_a.weight": lambda a: {"attn.in_proj_a.weight": order(a, 1)},
        "attn.conv1d.weight": lambda a: {"attn.conv1d.weight": order(a.squeeze(1), dim, all_keys)},
        "attn.A_log": lambda a: {"attn.A_log": order(-np.exp(a), 1)},
        "attn.dt_bias": lambda a: {"attn.dt_bias": order(a, 1)},
        "attn.out_proj.weight": lambda a: {"attn.out_proj.weight": order(a.T, dim).T},
        "shared_expert_gate.weight": lambda a: {"shared_expert_gate.weight": a.squeeze(0)}})


def split_latent(config, tensors):
    """Keys of every head, transposed, and values, apart."""
    def split(array):
        heads = array.reshape(config["num_attention_heads"], -1, array.shape[1])
        return {"k_b_proj.weight": heads[:, :config["qk_nope_head_dim"]].swapaxes(1, 2),
                "v_b_proj.weight": heads[:, config["qk_nope_head_dim"]:]}
    return edit(tensors, {"kv_b_proj.weight": split})


def fused_experts(tensors):
    """Gate above up in one stack."""
    fused = {}
    for name, array in tensors.items():
        if name.endswith("experts.gate_proj.weight"):
            other = tensors[name.replace("gate_proj", "up_proj")]
            fused[name.replace("gate_proj", "gate_up_proj")] = np.concatenate([array, other], axis=1)
        elif not name.endswith("experts.up_proj.weight"):
            fused[name] = array
    return fused


def common_facts(config):
    rope = config["rope_parameters"]
    rope = rope.get("full_attention", rope)
    keys = {"block_count": "num_hidden_layers", "context_length": "max_position_embeddings",
            "embedding_length": "hidden_size", "feed_forward_length": "intermediate_size",
            "head_count": "num_attention_heads", "head_count_kv": "num_key_value_heads", "key_length": "head_dim",
            "value_length": "head_dim", "layer_norm_rms_eps": "rms_norm_eps", "sliding_window": "sliding_window",
            "expert_used_count": "num_experts_per_tok", "expert_feed_forward_length": "moe_intermediate_size",
            "expert_shared_feed_forward_length": "shared_expert_intermediate_size", "expert_group_count": "n_group",
            "expert_group_used_count": "topk_group"}
    facts = {name: config[key] for name, key in keys.items() if config.get(key) is not None}
    for key in ("num_experts", "num_local_experts", "n_routed_experts"):
        if key in config:
            facts["expert_count"] = config[key]
    facts.update(rope_freq_base=rope["rope_theta"])
    if rope["rope_type"] == "yarn":
        facts.update(rope_scaling_type=gguf.RopeScalingType.YARN, rope_scaling_factor=rope["factor"],
                     rope_scaling_orig_ctx_len=rope["original_max_position_embeddings"],
                     rope_scaling_yarn_beta_fast=rope["beta_fast"], rope_scaling_yarn_beta_slow=rope["beta_slow"])
    return facts


def delta_net_facts(config):
    return {"ssm_conv_kernel": config["linear_conv_kernel_dim"], "ssm_state_size": config["linear_key_head_dim"],
            "ssm_group_count": config["linear_num_key_heads"], "ssm_time_step_rank": config["linear_num_value_heads"],
            "ssm_inner_size": config["linear_value_head_dim"] * config["linear_num_value_heads"],
            "full_attention_interval": 4,
            "rope_dimension_count": int(config["head_dim"] * config["partial_rotary_factor"])}


def latent_facts(config, split):
    rotary, value, rank = config["qk_rope_head_dim"], config["v_head_dim"], config["kv_lora_rank"]
    key = config["qk_nope_head_dim"] + rotary
    facts = {"q_lora_rank": config["q_lora_rank"], "kv_lora_rank": rank, "rope_dimension_count": rotary,
             "leading_dense_block_count": config["first_k_dense_replace"],
             "expert_shared_count": config["n_shared_experts"], "expert_weights_norm": config["norm_topk_prob"],
             "expert_weights_scale": config["routed_scaling_factor"],
             "expert_gating_func": gguf.ExpertGatingFuncType.SIGMOID}
    if "mscale_all_dim" in config["rope_parameters"]:
        facts["rope_scaling_yarn_log_mul"] = 0.1 * config["rope_parameters"]["mscale_all_dim"]
    if split:
        facts.update(head_count_kv=1, key_length=rank + rotary, value_length=rank, key_length_mla=key,
                     value_length_mla=value)
    else:
        facts.update(key_length=key, value_length=value)
    return facts


def rotary_factors(config):
    """What a llama3 rule divides each frequency by."""
    rope = config["rope_parameters"]
    dim = config["head_dim"]
    turns = rope["original_max_position_embeddings"] * rope["rope_theta"] ** (-np.arange(0, dim, 2) / dim) / (2 * np.pi)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - kept) / rope["factor"] + kept)).astype(np.float32)


def variants(case, config, tensors):
    """(architecture, what is special, facts, tensors by their names in a model directory or a file)."""
    facts = common_facts(config)
    if case == "llama":
        yield "llama", "", facts, {**rotary_pairs(config, tensors), "rope_freqs.weight": rotary_factors(config)}
    elif case == "gemma3":
        yield "gemma3", "", facts, plus_one(tensors)
    elif case == "gpt_oss":
        facts["expert_feed_forward_length"] = config["intermediate_size"]
        yield "gpt-oss", "", facts, gpt_oss(tensors)
    elif case == "deepseek_v3":
        yield "deepseek2", "keys and values apart", {**facts, **latent_facts(config, True)}, split_latent(config, tensors)
        yield "deepseek2", "keys and values together", {**facts, **latent_facts(config, False)}, tensors
    elif case in ("qwen3_next", "qwen3_5", "qwen3_5_moe"):
        made = plus_one(delta_net(config, tensors, case != "qwen3_next"))
        facts.update(delta_net_facts(config))
        name = {"qwen3_next": "qwen3next", "qwen3_5": "qwen35", "qwen3_5_moe": "qwen35moe"}[case]
        yield name, "", facts, made
        if case == "qwen3_5_moe":
            yield name, "gate and up in one stack", facts, fused_experts(made)
    else:
        yield case.replace("_", ""), "", facts, tensors


def file_name(name, architecture):
    """A tensor's name in the file."""
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    found = re.fullmatch(r"model\.layers\.(\d+)\.(.*)", name)
    if not found:
        return name
    block, rest = f"blk.{found[1]}.", found[2]
    if rest in WHOLE_NAMES:
        return block + WHOLE_NAMES[rest]
    stem, kind = rest.rsplit(".", 1)
    if stem == "post_attention_layernorm" and (architecture == "gpt-oss" or architecture.startswith(("qwen3n", "qwen35"))):
        return f"{block}post_attention_norm.{kind}"
    if architecture == "gemma3":
        branch = {"pre_feedforward_layernorm": "ffn_norm", "post_attention_layernorm": "post_attention_norm",
                  "post_feedforward_layernorm": "post_ffw_norm"}
        stem = branch.get(stem, stem)
        if stem in branch.values():
            return f"{block}{stem}.{kind}"
    return f"{block}{NAMES[stem]}.{kind}"


def is_product(name, array):
    """Whether quantisers touch it: matrices of whole blocks, save routers and taps."""
    kept = ("ffn_gate_inp", "ssm_conv1d", "ssm_ba", "bias")
    return array.ndim >= 2 and array.shape[-1] % 32 == 0 and not any(word in name for word in kept)


def write(path, architecture, facts, tensors, blocks=None, as_values=False):
    """A GGUF file in F32, in a block format, or with the values of a block format in F32."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in facts.items():
        getattr(writer, f"add_{key}")(value)
    for name, array in tensors.items():
        name, array = file_name(name, architecture), np.ascontiguousarray(array, dtype=np.float32)
        if blocks is None or not is_product(name, array):
            writer.add_tensor(name, array)
            continue
        codes = gguf.quants.quantize(array, blocks)
        if as_values:
            writer.add_tensor(name, gguf.quants.dequantize(codes, blocks))
        else:
            writer.add_tensor(name, codes, raw_dtype=blocks)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Comparison:
    """Differences over all models."""

    def __init__(self, trivet, folder):
        self.trivet = trivet
        self.folder = pathlib.Path(folder)
        self.wrong = 0

    def score(self, path, tokens, ranks=1):
        ids, out = self.folder / "ids.json", self.folder / "logits.safetensors"
        ids.write_text(json.dumps(tokens))
        command = [self.trivet, "score", str(path), "--tokens", str(ids), "--ranks", str(ranks), "--out", str(out)]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command)}: {done.stderr.decode()}")
        return next(array for name, array in read_safetensors(out).items() if "logits" in name)

    def expect(self, true, what):
        if not true:
            self.wrong += 1
            print(f"{what}: differs")

    def compare(self, directory):
        """A model with golden logits, and changed ones that need a directory of their own."""
        config = json.loads((directory / "config.json").read_text())
        golden = read_safetensors(directory / "golden.safetensors")
        tokens = golden["tokens"].flatten().tolist()
        model = read_safetensors(directory / "model.safetensors")
        if directory.name != "qwen3_moe":  # files of qwen3moe have no dense layers
            self.compare_variants(directory.name, config, model, tokens, golden["logits"])
        for config, model in changed(directory.name, config, model):
            write_directory(self.folder / "directory", config, model)
            logits = self.score(self.folder / "directory", tokens)
            self.compare_variants(directory.name, config, model, tokens, logits)

    def compare_variants(self, case, config, model, tokens, logits):
        for architecture, special, facts, tensors in variants(case, config, merge_experts(model)):
            what = f"{case} as {architecture}" + (f", {special}" if special else "")
            plain = self.same_on_all_ranks(what, tokens, (architecture, facts, tensors))
            worst = float(np.abs(plain.reshape(logits.shape) - logits).max())
            self.expect(worst <= TOLERANCE, f"{what}: golden logits")
            print(f"{what}: largest difference of a logit {worst:.1e}", flush=True)
            if not any(is_product(file_name(name, architecture), array) for name, array in tensors.items()):
                continue
            for blocks in MOST_APART:
                coded = self.same_on_all_ranks(f"{what}, {blocks.name}", tokens, (architecture, facts, tensors, blocks))
                path = self.folder / "values.gguf"
                write(path, architecture, facts, tensors, blocks, as_values=True)
                apart = float(np.abs(coded - self.score(path, tokens)).max())
                self.expect(apart <= MOST_APART[blocks], f"{what}: {blocks.name} and its values, by {apart:.1e}")
                self.expect(not np.array_equal(coded, plain), f"{what}: that {blocks.name} is not F32")

    def same_on_all_ranks(self, what, tokens, file):
        path = self.folder / "model.gguf"
        write(path, *file)
        logits = self.score(path, tokens)
        for ranks in (3, 5):
            self.expect(self.score(path, tokens, ranks).tobytes() == logits.tobytes(), f"{what} on {ranks} ranks")
        return logits


def changed(case, config, model):
    """Configs and tensors of models like a golden one."""
    if case == "qwen3_moe":
        yield drop_dense_layers(config, model)
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 32.0,
            "beta_slow": 1.0, "rope_theta": 10000.0}
    if case == "deepseek_v3":
        yield {**config, "rope_parameters": {**yarn, "mscale": 1.0, "mscale_all_dim": 1.0}}, model
    if case == "qwen3":
        yield {**config, "rope_parameters": yarn}, model


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        comparison = Comparison(sys.argv[1], folder)
        for case in ("llama", "qwen2", "qwen3", "qwen3_moe", "gemma3", "gpt_oss", "deepseek_v3", "qwen3_next",
                     "qwen3_5", "qwen3_5_moe"):
            directory = next((root / case for root in (CASES, SHARED) if (root / case).is_dir()), None)
            if directory is None:
                print(f"{case}: skipped, {CASES / case} and {SHARED / case} are absent")
            else:
                comparison.compare(directory)
    print(f"{comparison.wrong} differences")
    return 1 if comparison.wrong else 0


if __name__ == "__main__":
    sys.exit(main())

// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/attention_problem.h"

namespace trivet::kernels {
namespace {

const std::vector<std::vector<int32_t>>& HeadMaps() {
  // Group sizes 1, even, uneven (as overlapping cuts give), KV heads that no query uses, more than four queries.
  static const std::vector<std::vector<int32_t>> maps = {
      {0}, {0, 0, 1, 1}, {0, 0, 0, 0, 0, 1, 1, 1, 2}, {0, 2, 2, 2}, {0, 0, 0, 0, 0, 0, 0}};
  return maps;
}

// Values narrower than keys and a part of them, one KV head for all queries: a latent cache.
void CompareLatent(RowLog* log, int64_t key_dim, int64_t value_dim, int64_t q_heads, bool codes) {
  std::mt19937_64 random(20);
  constexpr int64_t kTokens = 70;
  const int64_t stride = key_dim + 3;
  const std::vector<float> kv = RandomValues(kTokens * stride, &random);
  const std::vector<float> q = RandomValues(kTokens * q_heads * key_dim, &random);
  const std::vector<int32_t> pages = {1, 0}, to_kv(static_cast<size_t>(q_heads), 0);
  const std::vector<TokenSpan> spans = {{0, kTokens, 0, 0, pages.data()}};
  std::vector<float> keys(static_cast<size_t>(2 * kBlockKeys * key_dim)),
      values(static_cast<size_t>(2 * kBlockKeys * value_dim));
  std::vector<std::byte> key_codes(static_cast<size_t>(2 * KvCodeBytes(key_dim)), kNanCode),
      value_codes(static_cast<size_t>(2 * KvCodeBytes(value_dim)), kNanCode);
  const KvPages cache = codes ? KvPages{nullptr, nullptr, 1, key_dim, value_dim, key_codes.data(), value_codes.data()}
                              : KvPages{keys.data(), values.data(), 1, key_dim, value_dim};
  KvWriteRef({kv.data(), stride, cache, spans, 0, kTokens, kv.data()});
  const std::string what = "latent " + std::to_string(key_dim) + (codes ? ", codes" : "");
  log->Compare<Attention>(what, [&](const KernelRow<Attention>& row, Outputs* outputs) {
    Guarded<float> out(kTokens * q_heads * value_dim, 1);
    row.run({q.data(), q_heads * key_dim, key_dim, q_heads, to_kv.data(), cache, 0.1F, out.data(), spans, 0, kTokens});
    outputs->Take(out);
  });
}

}  // namespace

void CompareAttention(RowLog* log) {
  std::mt19937_64 random(21);
  for (const int64_t dim : {1, 3, 8, 16, 20, 24, 32, 40, 48, 64, 100, 128}) {
    for (const std::vector<int32_t>& heads : HeadMaps()) {
      const int64_t kv_heads = heads.back() + 1;
      CompareKinds(log, "dim " + std::to_string(dim) + ", " + std::to_string(heads.size()) + " heads",
                   {heads, kv_heads, dim, {{0, 3}, {62, 4}, {0, 1}, {130, 5}, {63, 1}}}, &random);
    }
  }
  for (const int64_t window : {1, 3, 63, 64, 65, 100}) {
    CompareKinds(log, "window " + std::to_string(window),
                 {{0, 0, 0, 1}, 2, 32, {{0, 70}, {120, 90}}, window, window % 2 == 1, window > 60 ? 2.0F : 0.0F},
                 &random);
  }
  CompareKinds(log, "200 positions", {{0, 0, 0, 1}, 2, 16, {{0, 200}}}, &random);  // every position from 0 to 199
  for (const bool codes : {false, true}) CompareLatent(log, 40, 32, 2, codes);
  if (!log->large()) return;
  CompareAttentionTiles(log);
  for (const int64_t dim : {64, 128, 256}) {
    CompareKinds(log, "long, dim " + std::to_string(dim),
                 {{0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1}, 2, dim, {{0, 3}, {1500, 1}, {640, 1}, {63, 1}, {700, 40}}},
                 &random);
  }
  // Few queries of long contexts, whose pages blocks may share; some rounds of them, the last one not full.
  for (const auto& [start, window] : {std::pair{511, 0}, {575, 0}, {4600, 0}, {9000, 0}, {4600, 3000}, {2000, 100}}) {
    for (const int64_t dim : {20, 64, 256}) {
      CompareKinds(log, "few queries after " + std::to_string(start) + ", dim " + std::to_string(dim),
                   {{0, 0, 1}, 2, dim, {{start, 1}, {700, 2}}, window, window > 0, window > 200 ? 2.0F : 0.0F},
                   &random);
    }
  }
  for (const bool codes : {false, true}) {
    CompareLatent(log, 576, 512, 16, codes);
    CompareLatent(log, 192, 128, 5, codes);
  }
}

// Three heads' rows of two sequences, over the borders of pages, as floats and as codes.
void CompareKvWriteRows(RowLog* log, int64_t dim, int64_t value_dim, std::mt19937_64* random) {
  constexpr int64_t kHeads = 3, kPages = 9;
  const std::vector<int32_t> pages = {4, 0, 7, 1, 8};
  const std::vector<TokenSpan> spans = {
      {0, 5, 0, 0, pages.data()}, {5, 9, 60, 0, pages.data() + 1}, {14, 1, 128, 0, pages.data() + 2}};
  constexpr int64_t kTokens = 15;
  const int64_t stride = kHeads * (dim + value_dim) + 5;
  std::vector<float> kv = RandomValues(kTokens * stride, random);
  log->Compare<KvWrite>("dim " + std::to_string(dim), [&](const KernelRow<KvWrite>& row, Outputs* outputs) {
    Guarded<float> keys(kPages * kHeads * kBlockKeys * dim, 1), values(kPages * kHeads * kBlockKeys * value_dim, 1);
    std::fill_n(keys.data(), keys.size(), -1.0F);
    std::fill_n(values.data(), values.size(), -1.0F);
    row.run({kv.data(), stride, {keys.data(), values.data(), kHeads, dim, value_dim}, spans, 0, kTokens});
    outputs->Take(keys);
    outputs->Take(values);
  });
  // Every size that a float has, with rows of zeros and rows that are not finite.
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t i = 0; i < stride; ++i) {
      float& value = kv[static_cast<size_t>(t * stride + i)];
      value = t == 3 ? std::copysign(0.0F, value) : std::scalbn(value, static_cast<int>(t * 19) - 140);
    }
  }
  kv[static_cast<size_t>(5 * stride)] = std::numeric_limits<float>::infinity();
  kv[static_cast<size_t>(7 * stride + kHeads * dim)] = -std::numeric_limits<float>::quiet_NaN();
  log->Compare<KvWrite>("codes, dim " + std::to_string(dim), [&](const KernelRow<KvWrite>& row, Outputs* outputs) {
    Guarded<std::byte> keys(kPages * kHeads * KvCodeBytes(dim), 0), values(kPages * kHeads * KvCodeBytes(value_dim), 0);
    std::fill_n(keys.data(), keys.size(), kNanCode);
    std::fill_n(values.data(), values.size(), kNanCode);
    const KvPages cache{nullptr, nullptr, kHeads, dim, value_dim, keys.data(), values.data()};
    row.run({kv.data(), stride, cache, spans, 0, kTokens});
    outputs->Take(keys);
    outputs->Take(values);
  });
}

void CompareKvWrite(RowLog* log) {
  std::mt19937_64 random(22);
  for (const int64_t dim : {1, 7, 16, 33, 256}) CompareKvWriteRows(log, dim, dim, &random);
  CompareKvWriteRows(log, 48, 32, &random);
}

// The definition, in double.
void ExpectSoftmaxAttention(AttentionProblem* problem) {
  const int64_t dim = problem->shape().dim;
  Guarded<float> out = problem->Output();
  Attention::Args args = problem->Args();
  args.out = out.data();
  AttentionRef(args);
  for (size_t s = 0; s < problem->spans().size(); ++s) {
    const TokenSpan& span = problem->spans()[s];
    for (int64_t i = 0; i < span.count * problem->q_heads(); ++i) {
      const int64_t t = span.token_begin + i / problem->q_heads(), h = i % problem->q_heads();
      const int64_t kv = problem->shape().q_to_kv[static_cast<size_t>(h)], last = span.start + i / problem->q_heads();
      const int64_t first = args.window == 0 ? 0 : std::max<int64_t>(0, last - args.window + 1);
      std::vector<double> o(static_cast<size_t>(dim), 0.0);
      double sum = args.sinks == nullptr ? 0.0 : std::exp(static_cast<double>(args.sinks[h]));
      for (int64_t j = first; j <= last; ++j) {
        double score = 0;
        const float* q = args.q + t * args.q_stride + h * args.q_head_stride;
        for (int64_t d = 0; d < dim; ++d)
          score += static_cast<double>(q[d]) * static_cast<double>(problem->Key(s, j, kv, d));
        score *= static_cast<double>(args.scale);
        const auto cap = static_cast<double>(args.softcap);
        if (cap > 0) score = cap * std::tanh(score / cap);
        const double weight = std::exp(score);
        sum += weight;
        for (int64_t d = 0; d < dim; ++d)
          o[static_cast<size_t>(d)] += weight * static_cast<double>(problem->Value(s, j, kv, d));
      }
      for (int64_t d = 0; d < dim; ++d) {
        EXPECT_NEAR(out[(t * problem->q_heads() + h) * dim + d], o[static_cast<size_t>(d)] / sum, 2e-5);
      }
    }
  }
}

TEST(AttentionRef, IsSoftmaxAttention) {
  std::mt19937_64 random(23);
  AttentionProblem plain({{0, 0, 1}, 2, 24, {{0, 70}, {131, 2}}}, &random);
  ExpectSoftmaxAttention(&plain);
  for (const int64_t window : {1, 5, 64, 66, 1000}) {
    AttentionProblem windowed({{0, 0, 1}, 2, 24, {{0, 70}, {131, 2}}, window, true, window == 5 ? 1.0F : 0.0F},
                              &random);
    ExpectSoftmaxAttention(&windowed);
  }
}

// Values may be narrower than keys, and may be a part of them.
TEST(Attention, ValuesHaveAWidthOfTheirOwn) {
  std::mt19937_64 random(29);
  constexpr int64_t kKeyDim = 40, kValueDim = 32, kTokens = 70, kStride = 43;
  const std::vector<float> kv = RandomValues(kTokens * kStride, &random);
  const std::vector<float> q = RandomValues(kTokens * 2 * kKeyDim, &random);
  const std::vector<int32_t> pages = {1, 0}, to_kv = {0, 0};
  const TokenSpan span{0, kTokens, 0, 0, pages.data()};
  std::vector<float> keys(2 * kBlockKeys * kKeyDim), values(2 * kBlockKeys * kValueDim);
  const KvPages cache{keys.data(), values.data(), 1, kKeyDim, kValueDim};
  KvWriteRef({kv.data(), kStride, cache, std::span(&span, 1), 0, kTokens, kv.data()});
  RowLog log;
  log.Compare<Attention>("narrow values", [&](const KernelRow<Attention>& row, Outputs* outputs) {
    Guarded<float> out(kTokens * 2 * kValueDim, 1);
    row.run(
        {q.data(), 2 * kKeyDim, kKeyDim, 2, to_kv.data(), cache, 0.1F, out.data(), std::span(&span, 1), 0, kTokens});
    // The first token sees itself alone.
    for (int64_t d = 0; d < kValueDim; ++d) ASSERT_EQ(out[d], kv[static_cast<size_t>(d)]);
    outputs->Take(out);
  });
}

// A query's bytes are the same in a whole prefill, in chunks of any length and alone.
TEST(Attention, AQuerySeesTheSameBlocksHoweverItArrives) {
  std::mt19937_64 random(24);
  for (const int64_t dim : {16, 20, 64}) {
    constexpr int32_t kTokens = 150;
    AttentionProblem problem({{0, 0, 0, 0, 0, 1}, 2, dim, {{0, kTokens}}}, &random);
    const TokenSpan whole_span = problem.spans()[0];
    for (const KernelRow<Attention>& row : RunnableRowsOf<Attention>()) {
      Outputs whole;
      RunAll(row, &problem, &whole);
      for (const int32_t chunk : {1, 7, 64, 100}) {
        Guarded<float> out = problem.Output();
        for (int32_t start = 0; start < kTokens; start += chunk) {
          const TokenSpan span{0, std::min(chunk, kTokens - start), start, 0, whole_span.pages};
          Attention::Args args = problem.Args();
          args.q += start * args.q_stride;
          args.out = out.data() + start * args.q_heads * dim;
          args.spans = std::span(&span, 1);
          args.end = span.count * 2;
          row.run(args);
        }
        Outputs chunked;
        chunked.Take(out);
        EXPECT_EQ(whole.bytes(), chunked.bytes()) << row.name << ", dim " << dim << ", chunk " << chunk;
      }
    }
  }
}

TEST(Attention, ItemRangesTogetherGiveTheWhole) {
  std::mt19937_64 random(25);
  AttentionProblem problem({{0, 0, 0, 1, 2, 2}, 3, 32, {{0, 4}, {70, 3}}}, &random);
  for (const KernelRow<Attention>& row : RunnableRowsOf<Attention>()) {
    Outputs whole, cut;
    RunAll(row, &problem, &whole);
    Guarded<float> out = problem.Output();
    for (int64_t item = 0; item < problem.tokens() * 3; ++item) {
      Attention::Args args = problem.Args();
      args.out = out.data();
      args.begin = item;
      args.end = item + 1;
      row.run(args);
    }
    cut.Take(out);
    EXPECT_EQ(whole.bytes(), cut.bytes()) << row.name;
  }
}

// A head's bytes do not depend on which heads share its rank: uneven groups equal one head at a time.
TEST(Attention, AHeadsBytesDoNotDependOnItsNeighbours) {
  std::mt19937_64 random(26);
  AttentionProblem problem({{0, 0, 0, 0, 0, 0, 0}, 1, 48, {{100, 3}}}, &random);
  for (const KernelRow<Attention>& row : RunnableRowsOf<Attention>()) {
    Guarded<float> together = problem.Output();
    Attention::Args args = problem.Args();
    args.out = together.data();
    row.run(args);
    for (int64_t h = 0; h < 7; ++h) {
      std::vector<float> alone(3 * 48);
      Attention::Args one = problem.Args();
      one.q += h * one.q_head_stride;
      one.q_heads = 1;
      one.out = alone.data();
      row.run(one);
      for (int64_t t = 0; t < 3; ++t) {
        EXPECT_EQ(std::memcmp(alone.data() + t * 48, together.data() + (t * 7 + h) * 48, 48 * sizeof(float)), 0)
            << row.name << ", head " << h;
      }
    }
  }
}

TEST(Attention, LargeScoresStayFinite) {
  std::mt19937_64 random(27);
  AttentionProblem problem({{0}, 1, 16, {{0, 130}}}, &random);
  RowLog log;
  log.Compare<Attention>("large scores", [&](const KernelRow<Attention>& row, Outputs* outputs) {
    Guarded<float> out = problem.Output();
    Attention::Args args = problem.Args();
    args.scale = 1e4F;
    args.out = out.data();
    row.run(args);
    for (const float value : out.span()) ASSERT_TRUE(std::isfinite(value)) << row.name;
    outputs->Take(out);
  });
}

TEST(KvWrite, PutsEachTokenInItsPlaceAndNothingElse) {
  std::mt19937_64 random(28);
  constexpr int64_t kDim = 5, kHeads = 2, kStride = 2 * kHeads * kDim + 1;
  AttentionProblem problem({{0, 1}, kHeads, kDim, {{0, 3}, {62, 5}}}, &random);
  const std::vector<float> kv = RandomValues(problem.tokens() * kStride, &random);
  const KvPages cache = problem.cache();
  const int64_t elements = 6 * kHeads * kBlockKeys * kDim;
  std::fill_n(cache.keys, elements, -9.0F);
  std::fill_n(cache.values, elements, -9.0F);
  KvWriteRef({kv.data(), kStride, cache, problem.spans(), 1, problem.tokens()});
  int64_t written = 0;
  for (size_t s = 0; s < 2; ++s) {
    const TokenSpan& span = problem.spans()[s];
    for (int64_t i = s == 0 ? 1 : 0; i < span.count; ++i) {
      for (int64_t h = 0; h < kHeads; ++h) {
        for (int64_t d = 0; d < kDim; ++d, written += 2) {
          const auto at = static_cast<size_t>((span.token_begin + i) * kStride + h * kDim + d);
          EXPECT_EQ(problem.Key(s, span.start + i, h, d), kv[at]);
          EXPECT_EQ(problem.Value(s, span.start + i, h, d), kv[at + kHeads * kDim]);
        }
      }
    }
  }
  const auto changed = [](const float* from, int64_t count) {
    return std::count_if(from, from + count, [](float value) { return value != -9.0F; });
  };
  EXPECT_EQ(changed(cache.keys, elements) + changed(cache.values, elements), written);
}

TEST(SpanOf, FindsTheSpanOfEveryRowAndSkipsEmptyOnes) {
  const TokenSpan spans[] = {
      {0, 2, 0, 0, nullptr}, {2, 0, 0, 1, nullptr}, {2, 3, 0, 2, nullptr}, {5, 1, 0, 3, nullptr}};
  const int32_t expected[] = {0, 0, 2, 2, 2, 3};
  for (int64_t t = 0; t < 6; ++t) EXPECT_EQ(SpanOf(spans, t).state_slot, expected[t]);
}

}  // namespace trivet::kernels

// SPDX-License-Identifier: Apache-2.0
// The comparison that every family's tests share: each row that this machine runs against the reference row, by bytes,
// with canaries around every output.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "kernels/kernel.h"

namespace trivet::kernels {

/// `count` elements between two runs of canary bytes. The first is 64-byte aligned, or `skew` elements further.
template <class T>
class Guarded {
 public:
  explicit Guarded(int64_t count, int64_t skew = 0) : count_(count), memory_(Size(count, skew), kCanary) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data() + kGuardBytes);
    begin_ = static_cast<int64_t>((address + 63) / 64 * 64 - address) + kGuardBytes + skew * Bytes(1);
  }

  T* data() { return reinterpret_cast<T*>(memory_.data() + begin_); }
  const T* data() const { return reinterpret_cast<const T*>(memory_.data() + begin_); }
  int64_t size() const { return count_; }
  std::span<T> span() { return {data(), static_cast<size_t>(count_)}; }
  T& operator[](int64_t i) { return data()[i]; }
  const T& operator[](int64_t i) const { return data()[i]; }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(data(), static_cast<size_t>(count_))); }

  /// Whether no byte outside the elements changed.
  bool Intact() const {
    const auto is_canary = [](std::byte byte) { return byte == kCanary; };
    return std::all_of(memory_.begin(), memory_.begin() + begin_, is_canary) &&
           std::all_of(memory_.begin() + begin_ + Bytes(count_), memory_.end(), is_canary);
  }

 private:
  static constexpr std::byte kCanary{0xC5};
  static constexpr int64_t kGuardBytes = 256;
  static int64_t Bytes(int64_t count) { return count * static_cast<int64_t>(sizeof(T)); }
  static size_t Size(int64_t count, int64_t skew) {
    return static_cast<size_t>(2 * kGuardBytes + 64 + Bytes(count + skew));
  }

  int64_t count_;
  int64_t begin_ = 0;
  std::vector<std::byte> memory_;
};

/// What one row wrote: the bytes of every output, canaries checked. `finish`, if there is one, waits for the row before
/// the first of them is read.
class Outputs {
 public:
  explicit Outputs(void (*finish)() = nullptr) : finish_(finish) {}

  template <class T>
  void Take(const Guarded<T>& array) {
    if (finish_ != nullptr) finish_();
    const std::span<const std::byte> bytes = array.bytes();
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    intact_ &= array.Intact();
  }
  void Take(uint32_t word) {
    const auto bytes = std::as_bytes(std::span(&word, 1));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  bool intact() const { return intact_; }

 private:
  void (*finish_)();
  std::vector<std::byte> bytes_;
  bool intact_ = true;
};

/// Rows of family F that `target` runs.
template <class F>
std::vector<KernelRow<F>> RunnableRowsOf(const Target& target = CpuTarget()) {
  std::vector<KernelRow<F>> rows;
  for (const KernelRow<F>& row : RowsOf<F>(target.backend)) {
    if (target.Runs(row.target, row.contract)) rows.push_back(row);
  }
  return rows;
}

/// Compares rows and remembers which were compared.
class RowLog {
 public:
  /// Rows of `target`; `finish` waits for what a row started there. With `large` cases, those that have them add shapes
  /// of real models, which take the reference a while.
  explicit RowLog(Target target = CpuTarget(), void (*finish)() = nullptr, bool large = false)
      : target_(target), finish_(finish), large_(large) {}
  bool large() const { return large_; }
  Backend backend() const { return target_.backend; }

  /// Calls run(row, outputs) for the reference and for every row of F that this machine runs; `run` starts from the
  /// same state each time. Fails on any byte that differs and on any canary that changed.
  ///   what  names the case
  template <class F>
  void Compare(const std::string& what, const std::function<void(const KernelRow<F>&, Outputs*)>& run) {
    const KernelRow<F>& reference = F::Rows().back();
    ASSERT_EQ(reference.name, std::string(F::kName) + "/ref");
    Outputs expected;
    run(reference, &expected);
    ASSERT_FALSE(expected.bytes().empty()) << what;
    for (const KernelRow<F>& row : RunnableRowsOf<F>(target_)) {
      Outputs found(finish_);
      run(row, &found);
      compared_.emplace(row.name);
      ++cases_;
      EXPECT_TRUE(found.intact()) << row.name << ", " << what << ": wrote outside its output";
      ASSERT_EQ(found.bytes().size(), expected.bytes().size()) << row.name << ", " << what;
      const auto [at, _] = std::mismatch(found.bytes().begin(), found.bytes().end(), expected.bytes().begin());
      ASSERT_TRUE(at == found.bytes().end()) << row.name << ", " << what << ": byte " << at - found.bytes().begin()
                                             << " of " << found.bytes().size() << " differs from " << reference.name;
    }
  }
  const std::set<std::string>& compared() const { return compared_; }
  int64_t cases() const { return cases_; }

 private:
  Target target_;
  void (*finish_)();
  bool large_;
  std::set<std::string> compared_;
  int64_t cases_ = 0;
};

/// Fills with uniform values in [-range, range].
inline void FillRandom(std::span<float> values, std::mt19937_64* random, float range = 1) {
  std::uniform_real_distribution<float> uniform(-range, range);
  for (float& value : values) value = uniform(*random);
}

/// `count` random values.
inline std::vector<float> RandomValues(int64_t count, std::mt19937_64* random, float range = 1) {
  std::vector<float> values(static_cast<size_t>(count));
  FillRandom(values, random, range);
  return values;
}

/// 0 .. count - 1 in a random order.
inline std::vector<int32_t> Shuffled(int64_t count, std::mt19937_64* random) {
  std::vector<int32_t> order(static_cast<size_t>(count));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::shuffle(order.begin(), order.end(), *random);
  return order;
}

/// The cases of each family; defined in the family's test file, called by the parity tests.
void CompareGemm(RowLog* log);
void CompareAttention(RowLog* log);
void CompareKvWrite(RowLog* log);
void CompareDeltaNet(RowLog* log);
void CompareConv1d(RowLog* log);
void CompareRmsNorm(RowLog* log);
void CompareAddNorm(RowLog* log);
void CompareL2Norm(RowLog* log);
void CompareGatedNorm(RowLog* log);
void CompareGatedAct(RowLog* log);
void CompareSigmoidGate(RowLog* log);
void CompareEmbed(RowLog* log);
void CompareRope(RowLog* log);
void CompareRoute(RowLog* log);
void CompareAddBias(RowLog* log);
void CompareAddSums(RowLog* log);
void CompareRoundSums(RowLog* log);
void CompareMap(RowLog* log);
void CompareCopyRows(RowLog* log);
void CompareGroupPairs(RowLog* log);
void CompareExpertGemm(RowLog* log);
void CompareArgmax(RowLog* log);
void CompareDraw(RowLog* log);

}  // namespace trivet::kernels

// SPDX-License-Identifier: Apache-2.0
// From a weight format to the kernel compiled for it.
#pragma once

#include "kernels/weight_element.h"

namespace trivet::kernels {

/// Calls visit.operator()<kFormat>() for the format that `format` is.
template <class Visit>
void ForFormat(WeightFormat format, const Visit& visit) {
  switch (format) {
    case WeightFormat::kBF16:
      return visit.template operator()<WeightFormat::kBF16>();
    case WeightFormat::kF16:
      return visit.template operator()<WeightFormat::kF16>();
    case WeightFormat::kF32:
      return visit.template operator()<WeightFormat::kF32>();
    case WeightFormat::kQ4_0:
      return visit.template operator()<WeightFormat::kQ4_0>();
    case WeightFormat::kQ4_1:
      return visit.template operator()<WeightFormat::kQ4_1>();
    case WeightFormat::kQ5_0:
      return visit.template operator()<WeightFormat::kQ5_0>();
    case WeightFormat::kQ5_1:
      return visit.template operator()<WeightFormat::kQ5_1>();
    case WeightFormat::kQ8_0:
      return visit.template operator()<WeightFormat::kQ8_0>();
    case WeightFormat::kQ4K:
      return visit.template operator()<WeightFormat::kQ4K>();
    case WeightFormat::kQ5K:
      return visit.template operator()<WeightFormat::kQ5K>();
    case WeightFormat::kQ6K:
      return visit.template operator()<WeightFormat::kQ6K>();
    case WeightFormat::kMxfp4Halves:
      return visit.template operator()<WeightFormat::kMxfp4Halves>();
    case WeightFormat::kFp8:
      return visit.template operator()<WeightFormat::kFp8>();
    case WeightFormat::kMxfp4:
      CHECK_MSG(false, "mxfp4 on a GPU is mxfp4_halves");  // FormatOn
  }
}

}  // namespace trivet::kernels

#include "stored/compare_elements.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "format/numbers.h"

namespace sherd::stored {
namespace {

constexpr int64_t kAtOnce = 1024;

bool needs_wide(format::DType dtype) { return dtype == format::DType::i64 || dtype == format::DType::u64; }

template <class Number>
class Comparison {
 public:
  Comparison(const ElementsOf& a, const ElementsOf& b, const Tolerance& tolerance, ElementDifferences& differences)
      : a_(a), b_(b), tolerance_(tolerance), differences_(differences) {}

  void compare(int64_t first, int64_t count, int64_t number) {
    const int64_t numbers_a = format::numbers_in(a_.dtype);
    const int64_t numbers_b = format::numbers_in(b_.dtype);
    const bool by_distance = format::is_complex(a_.dtype) || format::is_complex(b_.dtype);
    decode_numbers(a_.dtype, a_.elements + first * size_of(a_.dtype), count, ours_.data());
    decode_numbers(b_.dtype, b_.elements + first * size_of(b_.dtype), count, theirs_.data());
    for (int64_t i = 0; i < count; ++i) {
      const Number* a = ours_.data() + i * numbers_a;
      const Number* b = theirs_.data() + i * numbers_b;
      if (by_distance) {
        take_complex(a[0], numbers_a == 2 ? a[1] : 0, b[0], numbers_b == 2 ? b[1] : 0, number + i);
      } else if (numbers_a == 2 && numbers_b == 2) {
        if (!take(a[0], b[0], number + i)) take(a[1], b[1], number + i);
      } else {
        take(a[0], b[0], number + i);
      }
    }
  }

 private:
  // Whether the two differ.
  bool take(Number a, Number b, int64_t number) {
    if (a == b) return false;
    const bool nan_a = std::isnan(a), nan_b = std::isnan(b);
    if (nan_a && nan_b) return false;
    if (nan_a || nan_b) {
      add(number);
      ++differences_.nans;
      return true;
    }
    const Number distance = std::abs(a - b);
    return take_distance(distance, std::abs(a), std::abs(b), number);
  }

  void take_complex(Number ar, Number ai, Number br, Number bi, int64_t number) {
    if (ar == br && ai == bi) return;
    const bool nan_a = std::isnan(ar) || std::isnan(ai), nan_b = std::isnan(br) || std::isnan(bi);
    if (nan_a && nan_b) return;
    if (nan_a || nan_b) {
      add(number);
      ++differences_.nans;
      return;
    }
    take_distance(std::hypot(ar - br, ai - bi), std::hypot(ar, ai), std::hypot(br, bi), number);
  }

  bool take_distance(Number distance, Number size_a, Number size_b, int64_t number) {
    if (std::isnan(distance)) distance = std::numeric_limits<Number>::infinity();
    const Number allowed = static_cast<Number>(tolerance_.absolute) +
                           (tolerance_.relative == 0 ? 0 : static_cast<Number>(tolerance_.relative) * size_b);
    if (distance <= allowed && !std::isinf(distance)) return false;
    add(number);
    const Number larger = std::max(size_a, size_b);
    differences_.max_absolute = std::max(differences_.max_absolute, static_cast<double>(distance));
    const Number ratio = std::isinf(distance) ? distance : distance / larger;
    differences_.max_relative = std::max(differences_.max_relative, static_cast<double>(ratio));
    return true;
  }

  void add(int64_t number) {
    ++differences_.count;
    if (differences_.first < 0) differences_.first = number;
  }

  const ElementsOf& a_;
  const ElementsOf& b_;
  const Tolerance& tolerance_;
  ElementDifferences& differences_;
  std::array<Number, 2 * kAtOnce> ours_;
  std::array<Number, 2 * kAtOnce> theirs_;
};

template <class Number>
void compare_all(const ElementsOf& a, const ElementsOf& b, int64_t count, int64_t number, const Tolerance& tolerance,
                 ElementDifferences& differences) {
  Comparison<Number> comparison(a, b, tolerance, differences);
  const int64_t size = size_of(a.dtype);
  for (int64_t done = 0; done < count; done += kAtOnce) {
    const int64_t some = std::min(kAtOnce, count - done);
    const bool same = a.dtype == b.dtype && std::memcmp(a.elements + done * size, b.elements + done * size,
                                                        static_cast<size_t>(some * size)) == 0;
    if (!same) comparison.compare(done, some, number + done);
  }
}

}  // namespace

void compare_elements(const ElementsOf& a, const ElementsOf& b, int64_t count, int64_t number,
                      const Tolerance& tolerance, ElementDifferences& differences) {
  if (needs_wide(a.dtype) || needs_wide(b.dtype)) {
    compare_all<long double>(a, b, count, number, tolerance, differences);
  } else {
    compare_all<double>(a, b, count, number, tolerance, differences);
  }
}

}  // namespace sherd::stored

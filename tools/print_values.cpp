#include "print_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "format/numbers.h"

namespace sherd::tools {
namespace {

// Which rows of a dim are shown: all, or some at either end.
struct Rows {
  int64_t size;
  int64_t head;  // the rows [0, head) and [size - tail, size)
  int64_t tail;
  int64_t count() const { return head + tail; }
  bool cut() const { return count() < size; }
};

class ValuePrinter {
 public:
  ValuePrinter(format::DType dtype, const Box& box, const Dims& shown, const PrintOptions& options)
      : dtype_(dtype), box_(box), shown_(shown), options_(options) {
    const bool all = numel(shown) <= options.threshold;
    for (const int64_t size : box.size) {
      if (all || size <= 2 * options.ends) {
        rows_.push_back({size, size, 0});
      } else {
        rows_.push_back({size, options.ends, options.ends});
      }
    }
  }

  std::string text(const ReadBox& read) {
    gather(read);
    choose_form();
    words_.clear();
    const int64_t size = size_of(dtype_);
    size_t widest = 0;
    for (size_t at = 0; at < elements_.size(); at += static_cast<size_t>(size)) {
      words_.push_back(word_of(elements_.data() + at));
      widest = std::max(widest, words_.back().size());
    }
    for (std::string& word : words_) word.insert(0, widest - word.size(), ' ');
    std::vector<Rows> visible;  // the dims in brackets
    size_t next = 0;
    for (const Rows& rows : rows_) {
      if (next < shown_.size() && rows.size == shown_[next]) {
        visible.push_back(rows);
        ++next;
      }
    }
    std::string out;
    if (shown_.empty()) return words_.empty() ? "" : words_.front();
    size_t at = 0;
    print(visible, 0, at, out);
    return out;
  }

 private:
  // The elements that are shown, in row-major order: first all rows of a box of ends, then put in their places.
  void gather(const ReadBox& read) {
    Dims counts;
    for (const Rows& rows : rows_) counts.push_back(rows.count());
    elements_.resize(static_cast<size_t>(numel(counts) * size_of(dtype_)));
    if (elements_.empty()) return;
    gather(read, 0, Box{{}, {}}, {}, counts);
  }

  void gather(const ReadBox& read, size_t dim, const Box& chosen, const Dims& into, const Dims& counts) {
    if (dim == rows_.size()) {
      Box wanted = chosen;
      for (size_t d = 0; d < dim; ++d) wanted.offset[d] += box_.offset[d];
      place(read(wanted), chosen.size, into, counts);
      return;
    }
    const Rows& rows = rows_[dim];
    const auto part = [&](int64_t from, int64_t count, int64_t to) {
      if (count == 0) return;
      Box box = chosen;
      Dims at = into;
      box.offset.push_back(from);
      box.size.push_back(count);
      at.push_back(to);
      gather(read, dim + 1, box, at, counts);
    };
    part(0, rows.head, 0);
    part(rows.size - rows.tail, rows.tail, rows.head);
  }

  void place(const std::vector<std::byte>& bytes, const Dims& sizes, const Dims& into, const Dims& counts) {
    const int64_t size = size_of(dtype_);
    Dims at(sizes.size(), 0);
    for (int64_t i = 0; i < numel(sizes); ++i) {
      int64_t to = 0;
      for (size_t d = 0; d < sizes.size(); ++d) to = to * counts[d] + into[d] + at[d];
      std::copy_n(bytes.begin() + i * size, size, elements_.begin() + to * size);
      for (size_t d = sizes.size(); d-- > 0;) {
        if (++at[d] < sizes[d]) break;
        at[d] = 0;
      }
    }
  }

  // As torch chooses: whole numbers without digits behind the point, powers of ten where numbers are far apart.
  void choose_form() {
    if (!format::is_floating(dtype_)) return;
    const auto count = static_cast<int64_t>(elements_.size()) / size_of(dtype_);
    std::vector<double> numbers(static_cast<size_t>(count * format::numbers_in(dtype_)));
    decode_numbers(dtype_, elements_.data(), count, numbers.data());
    double most = 0, least = std::numeric_limits<double>::infinity();
    for (const double number : numbers) {
      if (!std::isfinite(number) || number == 0) continue;
      most = std::max(most, std::abs(number));
      least = std::min(least, std::abs(number));
      whole_ = whole_ && number == std::floor(number);
    }
    if (most == 0) return;
    powers_ = most / least > 1000 ? !whole_ || most > 1e8 : most > 1e8 || least < 1e-4;
  }

  std::string number_text(double number) const {
    if (std::isnan(number)) return "nan";
    if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
    if (powers_) return fmt::format("{:.{}e}", number, options_.precision);
    return whole_ ? fmt::format("{:.0f}.", number) : fmt::format("{:.{}f}", number, options_.precision);
  }

  std::string word_of(const std::byte* element) const {
    if (options_.exact || !format::is_floating(dtype_)) return element_text(dtype_, element);
    double numbers[2] = {};
    decode_numbers(dtype_, element, 1, numbers);
    if (format::numbers_in(dtype_) == 1) return number_text(numbers[0]);
    if (!format::is_complex(dtype_)) return number_text(numbers[0]) + " " + number_text(numbers[1]);
    return number_text(numbers[0]) + (std::signbit(numbers[1]) ? "-" : "+") + number_text(std::abs(numbers[1])) + "j";
  }

  void print(const std::vector<Rows>& dims, size_t dim, size_t& at, std::string& out) const {
    const Rows& rows = dims[dim];
    const bool innermost = dim + 1 == dims.size();
    const std::string between =
        innermost ? ", " : "," + std::string(dims.size() - 1 - dim, '\n') + std::string(dim + 1, ' ');
    out += "[";
    for (int64_t i = 0; i < rows.count(); ++i) {
      if (i > 0) out += between;
      if (i == rows.head && rows.cut()) out += "..." + between;
      if (innermost) {
        out += words_[at++];
      } else {
        print(dims, dim + 1, at, out);
      }
    }
    out += "]";
  }

  format::DType dtype_;
  const Box& box_;
  const Dims& shown_;
  const PrintOptions& options_;
  std::vector<Rows> rows_;
  std::vector<std::byte> elements_;
  std::vector<std::string> words_;
  bool whole_ = true;
  bool powers_ = false;
};

}  // namespace

std::string values_text(format::DType dtype, const Box& box, const Dims& shown, const ReadBox& read,
                        const PrintOptions& options) {
  return ValuePrinter(dtype, box, shown, options).text(read);
}

}  // namespace sherd::tools

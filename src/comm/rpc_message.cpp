#include "comm/rpc_message.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <c10/core/ScalarTypeToTypeMeta.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "comm/as_bytes.h"

namespace sherd::detail {
namespace {

constexpr int64_t kRequestMark = 0x3151'4452'4548'53;  // "SHERDQ1"
constexpr int64_t kReplyMark = 0x3141'4452'4548'53;    // "SHERDA1"
constexpr size_t kMostDims = 64;
constexpr size_t kMostText = 1 << 16;
constexpr size_t kNumber = sizeof(int64_t);

class Writer {
 public:
  explicit Writer(int64_t mark) { add(mark); }
  Writer& add(int64_t number) {
    bytes_.resize(bytes_.size() + kNumber);
    std::memcpy(bytes_.data() + bytes_.size() - kNumber, &number, kNumber);
    return *this;
  }
  Writer& add_text(const std::string& text) {
    const size_t length = std::min(text.size(), kMostText);
    bytes_.insert(bytes_.end(), text.begin(), text.begin() + static_cast<std::ptrdiff_t>(length));
    return *this;
  }
  std::vector<char> bytes() { return std::move(bytes_); }

 private:
  std::vector<char> bytes_;
};

class Reader {
 public:
  Reader(const std::vector<char>& bytes, int64_t mark) : bytes_(bytes) {
    if (take() != mark) throw std::invalid_argument("no message of sherd's, or one of another version");
  }
  int64_t take() {
    if (bytes_.size() - at_ < kNumber) throw std::invalid_argument("the message is too short");
    int64_t number = 0;
    std::memcpy(&number, bytes_.data() + at_, kNumber);
    at_ += kNumber;
    return number;
  }
  int64_t take(int64_t most, const char* what) {
    const int64_t number = take();
    if (number < 0 || number > most) throw std::invalid_argument(fmt::format("{} cannot be {}", what, number));
    return number;
  }
  std::string take_text() {
    if (bytes_.size() - at_ > kMostText) throw std::invalid_argument("the message is too long");
    std::string text(bytes_.data() + at_, bytes_.size() - at_);
    at_ = bytes_.size();
    return text;
  }
  void expect_end() const {
    if (at_ != bytes_.size()) throw std::invalid_argument("the message is too long");
  }

 private:
  const std::vector<char>& bytes_;
  size_t at_ = 0;
};

constexpr int64_t kMostNumber = std::numeric_limits<int64_t>::max();

c10::ScalarType take_dtype(Reader& reader) {
  const auto dtype =
      static_cast<c10::ScalarType>(reader.take(static_cast<int64_t>(c10::ScalarType::NumOptions) - 1, "a dtype"));
  if (dtype == c10::ScalarType::Undefined || c10::isQIntType(dtype)) {
    throw std::invalid_argument(fmt::format("a tensor cannot be {}", c10::toString(dtype)));
  }
  return dtype;
}

// The tensor whose elements are `data`.
at::Tensor take_tensor(Reader& reader, const at::Tensor& data) {
  const c10::ScalarType dtype = take_dtype(reader);
  std::vector<int64_t> sizes(static_cast<size_t>(reader.take(kMostDims, "a number of dims")));
  auto bytes = static_cast<int64_t>(c10::scalarTypeToTypeMeta(dtype).itemsize());
  bool fits = true;
  for (int64_t& size : sizes) {
    size = reader.take(kMostNumber, "a size");
    fits = !__builtin_mul_overflow(bytes, size, &bytes) && fits;
  }
  const bool plain = data.defined() && data.scalar_type() == c10::ScalarType::Byte && data.dim() == 1 &&
                     data.is_contiguous() && data.device().is_cpu();
  const int64_t given = plain ? data.numel() : 0;
  if (!fits || (data.defined() && !plain) || given != bytes) {
    throw std::invalid_argument(
        fmt::format("{} bytes came for {} of [{}]", given, c10::toString(dtype), fmt::join(sizes, ", ")));
  }
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (bytes == 0) return at::empty(sizes, dtype);
  return data.view(dtype).view(sizes);
}

}  // namespace

at::Tensor plain_values(const at::Tensor& tensor) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  at::Tensor values = tensor.detach();
  if (!values.device().is_cpu()) {
    // What the owner computes is in streams that this thread does not know.
    c10::impl::VirtualGuardImpl(values.device().type()).synchronizeDevice(values.device().index());
    values = values.to(c10::kCPU);
  }
  values = values.resolve_conj().resolve_neg().contiguous();
  return values.storage().nbytes() == values.nbytes() ? values : values.clone();
}

RpcMessage to_message(const RpcRequest& request) {
  return {Writer(kRequestMark)
              .add(request.kind)
              .add(request.to)
              .add(static_cast<int64_t>(request.id))
              .add(static_cast<int64_t>(request.index))
              .bytes()};
}

RpcMessage to_message(const RpcReply& reply) {
  Writer writer(kReplyMark);
  writer.add(reply.status);
  if (reply.status == RpcReply::no_such_index) writer.add(static_cast<int64_t>(reply.count));
  if (reply.status == RpcReply::failed) writer.add_text(reply.text);
  if (reply.status != RpcReply::done || !reply.tensor) return {writer.bytes()};
  const at::Tensor values = plain_values(*reply.tensor);
  writer.add(static_cast<int64_t>(values.scalar_type())).add(values.dim());
  for (const int64_t size : values.sizes()) writer.add(size);
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return {writer.bytes(), values.numel() == 0 ? at::Tensor() : as_bytes(values)};
}

RpcRequest parse_request(const RpcMessage& message) {
  Reader reader(message.head, kRequestMark);
  RpcRequest request;
  request.kind = static_cast<RpcRequest::Kind>(reader.take(RpcRequest::fetch, "a kind of request"));
  request.to = reader.take(kMostNumber, "a rank");
  request.id = static_cast<uint64_t>(reader.take());
  request.index = static_cast<uint64_t>(reader.take());
  reader.expect_end();
  return request;
}

RpcReply parse_reply(const RpcMessage& message) {
  Reader reader(message.head, kReplyMark);
  RpcReply reply;
  reply.status = static_cast<RpcReply::Status>(reader.take(RpcReply::failed, "a status"));
  if (reply.status == RpcReply::no_such_index) reply.count = static_cast<uint64_t>(reader.take());
  if (reply.status == RpcReply::failed) reply.text = reader.take_text();
  const bool has_tensor = reply.status == RpcReply::done && message.head.size() > 2 * kNumber;
  if (has_tensor) reply.tensor = take_tensor(reader, message.data);
  reader.expect_end();
  if (message.data.defined() && !has_tensor) throw std::invalid_argument("a tensor came that was not announced");
  return reply;
}

}  // namespace sherd::detail

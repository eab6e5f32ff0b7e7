#pragma once
// What ranks ask each other for tensors, and answer, as bytes: numbers of 64 bits in the machine's order, a mark first.
// Tensors travel as bytes of their elements, so that every dtype can. Whatever arrives is checked before it is
// believed.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sherd::detail {

struct RpcMessage {
  std::vector<char> head;
  at::Tensor data = {};  // u8[n] on the CPU, or undefined
};

struct RpcRequest {
  enum Kind : int64_t { greet, fetch };
  Kind kind = greet;
  int64_t to = 0;  // the rank that is meant
  uint64_t id = 0;
  uint64_t index = 0;
};

struct RpcReply {
  enum Status : int64_t {
    done,           // with a tensor where one was asked for
    no_such_id,     // the owner shares nothing under it, any more or at all
    no_such_index,  // `count` are shared
    not_me,         // the request was for another rank than the one that it reached
    failed          // `text` says why
  };
  Status status = done;
  std::optional<at::Tensor> tensor = {};
  uint64_t count = 0;
  std::string text = {};
};

RpcMessage to_message(const RpcRequest& request);
/// A tensor on the CPU whose elements fill its storage travels without being copied before.
RpcMessage to_message(const RpcReply& reply);

/// Throw std::invalid_argument, saying what is wrong, for what no rank of this version sends.
RpcRequest parse_request(const RpcMessage& message);
RpcReply parse_reply(const RpcMessage& message);

/// The tensor's values: contiguous, on the CPU, filling their storage. The tensor itself where it is so already.
at::Tensor plain_values(const at::Tensor& tensor);

}  // namespace sherd::detail

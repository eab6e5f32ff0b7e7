#include "comm/purpose.h"

namespace sherd::detail {
namespace {

thread_local PurposePtr this_threads_purpose;

// FNV-1a. Never 0, which stands for no purpose.
uint64_t hash_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash | 1;
}

}  // namespace

Purpose::Purpose(std::string what) : text(std::move(what)), hash(hash_of(text)) {}

const PurposePtr& current_purpose() { return this_threads_purpose; }

PurposeScope::PurposeScope(PurposePtr purpose) : outer_(std::exchange(this_threads_purpose, std::move(purpose))) {}
PurposeScope::~PurposeScope() { this_threads_purpose = std::move(outer_); }

}  // namespace sherd::detail

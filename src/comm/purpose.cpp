#include "comm/purpose.h"

#include <fmt/format.h>

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

Purpose::Purpose(std::string what, uint64_t more)
    : text(more == 0 ? std::move(what) : fmt::format("{} ({:x})", what, more)), hash(hash_of(text)) {}

PurposePtr common_purpose(const std::vector<PurposePtr>& purposes) {
  if (purposes.size() == 1) return purposes.front();
  uint64_t hash = 0;
  for (const PurposePtr& purpose : purposes) hash = hash * 31 + purpose->hash;
  return std::make_shared<Purpose>(
      fmt::format("{} and {} more ({:x})", purposes.front()->text, purposes.size() - 1, hash));
}

const PurposePtr& current_purpose() { return this_threads_purpose; }

PurposeScope::PurposeScope(PurposePtr purpose) : outer_(std::exchange(this_threads_purpose, std::move(purpose))) {}
PurposeScope::~PurposeScope() { this_threads_purpose = std::move(outer_); }

}  // namespace sherd::detail

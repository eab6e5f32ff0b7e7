#include "storage/s3_sign.h"

#include <fmt/format.h>

#include <algorithm>

#include "storage/sha256.h"

namespace sherd {

std::string url_encode(std::string_view text, bool keep_slashes) {
  std::string encoded;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '.' || c == '_' || c == '~' || (c == '/' && keep_slashes);
    if (plain) {
      encoded += c;
    } else {
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

std::string query_text(const S3Pairs& query) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : query) parts.push_back(url_encode(name, false) + "=" + url_encode(value, false));
  std::ranges::sort(parts);
  return fmt::format("{}", fmt::join(parts, "&"));
}

void sign(S3Call& call, const S3Keys& keys, const std::string& time) {
  constexpr const char* kBody = "UNSIGNED-PAYLOAD";
  call.headers.emplace_back("host", call.host);
  call.headers.emplace_back("x-amz-content-sha256", kBody);
  call.headers.emplace_back("x-amz-date", time);
  if (!keys.session_token.empty()) call.headers.emplace_back("x-amz-security-token", keys.session_token);
  std::ranges::sort(call.headers);

  std::string lines;
  std::string names;
  for (const auto& [name, value] : call.headers) {
    lines += fmt::format("{}:{}\n", name, value);
    names += (names.empty() ? "" : ";") + name;
  }
  const std::string request = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", call.method, url_encode(call.path, true),
                                          query_text(call.query), lines, names, kBody);
  const std::string day = time.substr(0, 8);
  const std::string scope = fmt::format("{}/{}/s3/aws4_request", day, keys.region);
  const std::string text = fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", time, scope, hex_of(sha256(request)));

  Digest key = hmac_sha256("AWS4" + keys.secret_key, day);
  for (const std::string_view part :
       {std::string_view(keys.region), std::string_view("s3"), std::string_view("aws4_request")}) {
    key = hmac_sha256(text_of(key), part);
  }
  call.headers.emplace_back(
      "authorization", fmt::format("AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={}", keys.access_key,
                                   scope, names, hex_of(hmac_sha256(text_of(key), text))));
}

}  // namespace sherd

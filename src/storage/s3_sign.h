#pragma once
// Signature version 4 of requests to S3.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sherd {

struct S3Keys {
  std::string access_key;
  std::string secret_key;
  std::string session_token;  // of keys that last for a while; empty for others
  std::string region;
};

/// Names and values; unencoded.
using S3Pairs = std::vector<std::pair<std::string, std::string>>;

struct S3Call {
  std::string method;
  std::string host;  // with the port where it is not the usual one
  std::string path;  // unencoded, from "/"
  S3Pairs query = {};
  S3Pairs headers = {};  // names in lower case
};

/// %XX but for letters, digits and "-._~"; and slashes where they are to stay.
std::string url_encode(std::string_view text, bool keep_slashes);
/// "a=b&c=d", encoded and sorted.
std::string query_text(const S3Pairs& query);

/// Adds the headers that sign it: all of its headers, but not its body, which has digests of its own and may be large.
/// `time`: "20130524T000000Z".
void sign(S3Call& call, const S3Keys& keys, const std::string& time);

}  // namespace sherd

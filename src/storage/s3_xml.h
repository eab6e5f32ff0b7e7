#pragma once
// The little of XML that S3 answers in: elements without attributes that matter, found by name.

#include <string>
#include <string_view>
#include <vector>

namespace sherd {

/// What is between each <name> and its </name>, in order. Elements of one name do not nest.
std::vector<std::string_view> xml_elements(std::string_view text, std::string_view name);
/// The text of the first one, with &amp; and its like replaced; empty where there is none.
std::string xml_text(std::string_view text, std::string_view name);
std::string xml_escape(std::string_view text);

}  // namespace sherd

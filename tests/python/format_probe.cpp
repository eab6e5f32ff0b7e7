// Does one thing with a file, for the tests that compare with Python: a verb and its arguments a line on standard
// input, "ok" or the error's text in one line on standard output.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "format/archive.h"
#include "format/dcp.h"
#include "format/pickle.h"
#include "format/safetensors.h"
#include "format/transforms.h"

namespace {

using namespace sherd;
using namespace sherd::format;
using Arguments = std::vector<std::string>;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("no file " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

// pickle IN OUT: reads a pickle and writes it again.
std::string repickle(const Arguments& arguments) {
  const std::string bytes = read_file(arguments.at(0));
  const Value value = unpickle(bytes_of(bytes));
  const std::string written = pickle(value);
  if (!(unpickle(bytes_of(written)) == value)) throw std::logic_error("what was written reads differently");
  write_file(arguments.at(1), written);
  return to_string(value);
}

DType dtype_named(const std::string& name) {
  const auto dtype = dtype_from_torch(name);
  if (!dtype) throw std::invalid_argument("no dtype " + name);
  return *dtype;
}

TensorItem item_of(const Arguments& arguments) {
  return {.dtype = dtype_named(arguments.at(0)),
          .sizes = parse_dims(arguments.at(1)),
          .strides = parse_dims(arguments.at(2))};
}

// item DTYPE SIZES STRIDES DATA OUT: one tensor's archive.
std::string write_item(const Arguments& arguments) {
  const TensorItem item = item_of(arguments);
  const std::string data = read_file(arguments.at(3));
  const std::string written = head_of(item) + data + tail_of(item, format::crc32(bytes_of(data)));
  const ItemLengths lengths = lengths_of(item);
  if (lengths.total() != static_cast<int64_t>(written.size())) throw std::logic_error("lengths_of is wrong");
  write_file(arguments.at(4), written);
  return {};
}

// ends DTYPE SIZES STRIDES CRC OUT: head and tail alone, for tensors that no disk here holds.
std::string write_ends(const Arguments& arguments) {
  const TensorItem item = item_of(arguments);
  const ItemLengths lengths = lengths_of(item);
  const std::string head = head_of(item);
  const std::string tail = tail_of(item, static_cast<uint32_t>(std::stoul(arguments.at(3))));
  if (lengths.head != static_cast<int64_t>(head.size()) || lengths.tail != static_cast<int64_t>(tail.size())) {
    throw std::logic_error("lengths_of is wrong");
  }
  write_file(arguments.at(4), head + tail);
  return fmt::format("{} {}", head.size(), lengths.total());
}

// archive IN OUT: reads everything in a torch.save file and writes it again.
std::string rewrite_archive(const Arguments& arguments) {
  const std::string bytes = read_file(arguments.at(0));
  const MemorySource source(bytes_of(bytes));
  const Archive archive = read_archive(source, arguments.at(0));
  const std::string pickled = read_record(source, *archive.find("data.pkl"), arguments.at(0));
  const Value value = unpickle(bytes_of(pickled));
  std::vector<std::string> contents;
  std::vector<std::string> keys;
  for (const Record& record : archive.records) {
    if (!record.name.starts_with("data/")) continue;
    keys.push_back(record.name.substr(5));
    contents.push_back(read_record(source, record, arguments.at(0)));
  }
  std::vector<StorageBytes> storages;
  for (size_t i = 0; i < keys.size(); ++i) storages.push_back({keys[i], bytes_of(contents[i])});
  std::string written;
  write_archive(value, storages, [&](std::span<const std::byte> part) {
    written.append(reinterpret_cast<const char*>(part.data()), part.size());
  });
  write_file(arguments.at(1), written);
  return to_string(value, 100000);
}

std::string encoded(const Metadata& metadata) {
  std::string bytes;
  encode_metadata(metadata, [&](std::span<const std::byte> part) {
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
  });
  return bytes;
}

// metadata IN OUT: reads a .metadata and writes it again.
std::string rewrite_metadata(const Arguments& arguments) {
  const Metadata metadata = decode_metadata(bytes_of(read_file(arguments.at(0))), arguments.at(0));
  const std::string written = encoded(metadata);
  if (encoded(decode_metadata(bytes_of(written), "what was written")) != written) {
    throw std::logic_error("what was written reads differently");
  }
  write_file(arguments.at(1), written);
  return fmt::format("{} entries", metadata.entries.size());
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream words(text);
  for (std::string part; std::getline(words, part, ',');) parts.push_back(part);
  return parts;
}

// unpack TRANSFORMS IN OUT, pack TRANSFORMS IN OUT
std::string unpack(const Arguments& arguments) {
  write_file(arguments.at(2), decode(split(arguments.at(0)), bytes_of(read_file(arguments.at(1))), int64_t{1} << 40));
  return {};
}
std::string pack(const Arguments& arguments) {
  write_file(arguments.at(2), encode(split(arguments.at(0)), bytes_of(read_file(arguments.at(1)))));
  return {};
}

// safetensors IN OUT: reads a file and writes it again.
std::string rewrite_safetensors(const Arguments& arguments) {
  const std::string bytes = read_file(arguments.at(0));
  const SafetensorsFile file = read_safetensors(MemorySource(bytes_of(bytes)), arguments.at(0));
  SafetensorsFile again = file;
  std::reverse(again.tensors.begin(), again.tensors.end());
  std::string written = lay_out_safetensors(again);
  for (const SafeTensor& tensor : again.tensors) {
    written +=
        bytes.substr(static_cast<size_t>(file.find(tensor.name)->offset), static_cast<size_t>(tensor.data_bytes()));
  }
  write_file(arguments.at(1), written);
  return {};
}

// folder PATH: the tensors of a folder of safetensors, with their sizes and numbers of chunks.
std::string list_folder(const Arguments& arguments) {
  std::vector<NamedSafetensors> files;
  for (const auto& entry : std::filesystem::directory_iterator(arguments.at(0))) {
    const std::string bytes = read_file(entry.path());
    files.push_back({entry.path().filename(), read_safetensors(MemorySource(bytes_of(bytes)), entry.path().native())});
  }
  std::map<std::string, std::string> lines;
  for (const MetadataEntry& entry : metadata_of(files, arguments.at(0)).entries) {
    const auto& tensor = std::get<TensorEntry>(entry.content);
    lines[entry.name] = fmt::format("{} {} {}", entry.name, sherd::to_string(tensor.size), tensor.chunk_count());
  }
  std::string text;
  for (const auto& [name, line] : lines) text += (text.empty() ? "" : "; ") + line;
  return text;
}

// index IN OUT: model.safetensors.index.json
std::string rewrite_index(const Arguments& arguments) {
  const auto index = decode_safetensors_index(bytes_of(read_file(arguments.at(0))), arguments.at(0));
  write_file(arguments.at(1), encode_safetensors_index(index));
  return {};
}

// clang-format off
const std::map<std::string, std::function<std::string(const Arguments&)>> kVerbs = {
    {"pickle", repickle},
    {"item", write_item},
    {"ends", write_ends},
    {"archive", rewrite_archive},
    {"metadata", rewrite_metadata},
    {"unpack", unpack},
    {"pack", pack},
    {"safetensors", rewrite_safetensors},
    {"folder", list_folder},
    {"index", rewrite_index},
};
// clang-format on

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    Arguments arguments;
    for (std::string word; std::getline(words, word, '\t');) arguments.push_back(word);
    const std::string verb = arguments.at(0);
    arguments.erase(arguments.begin());
    std::string answer;
    try {
      answer = "ok " + kVerbs.at(verb)(arguments);
    } catch (const std::exception& error) {
      answer = std::string("error ") + error.what();
    }
    for (char& c : answer) {
      if (c == '\n') c = '|';
    }
    std::cout << answer << std::endl;
  }
}

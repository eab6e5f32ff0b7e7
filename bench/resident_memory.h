#pragma once
// What this process holds in memory, as the kernel counts it.

#include <cstdint>
#include <fstream>
#include <string>

class ResidentMemory {
 public:
  static int64_t now() { return read("/proc/self/status", "VmRSS:"); }
  /// The most since the last call of forget_peak().
  static int64_t peak() { return read("/proc/self/status", "VmHWM:"); }
  static void forget_peak() { std::ofstream("/proc/self/clear_refs") << "5" << std::flush; }
  /// This process's share of what it holds together with others.
  static int64_t shared() { return read("/proc/self/smaps_rollup", "Pss_Shmem:"); }

 private:
  static int64_t read(const char* file, const std::string& name) {
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind(name, 0) == 0) return std::stoll(line.substr(name.size())) * 1024;
    }
    return 0;
  }
};

#include "picture/page.h"

#include <fmt/format.h>

#include "picture/escape.h"

namespace sherd::detail {
namespace {

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --ink: #1b1d20; --soft: #5c6470; --line: #d7dbe1; --paper: #ffffff; --raised: #f4f5f7; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8eb; --soft: #9aa4b2; --line: #3a414c; --paper: #15181c; --raised: #1e2227; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 24px 16px 48px; max-width: 800px; font: 16px/1.5 system-ui, sans-serif; color: var(--ink);
       background: var(--paper); }
h1 { font-size: 1.5em; line-height: 1.25; margin: 0 0 .5em; }
h2 { font-size: 1.15em; margin: 2em 0 .5em; overflow-wrap: anywhere; }
p { margin: .6em 0; } .soft { color: var(--soft); font-size: .9em; }
code { font: .9em ui-monospace, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
svg { display: block; }
figure { margin: 0 0 1em; min-width: 0; } figcaption { font-size: .85em; overflow-wrap: anywhere; margin-bottom: .2em; }
figcaption code { font-size: 11px; }
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 240px), 1fr)); gap: 8px 20px; }
.pictures figure { background: var(--raised); border-radius: 8px; padding: 10px; }
.pictures svg { margin: 0 auto; }
.wide { overflow-x: auto; } section .wide svg { min-width: 480px; }
.chart svg { width: 100%; max-width: 700px; min-width: 420px; height: auto; font: 12px system-ui, sans-serif; }
table { border-collapse: collapse; font-size: .85em; } th, td { padding: .3em 1em .3em 0; text-align: left; }
th { border-bottom: 1px solid var(--line); font-weight: 600; white-space: nowrap; } tr + tr td { border-top: 1px solid var(--line); }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
)";

}  // namespace

std::string page(std::string_view title, std::string_view body) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n<style>{}</style>\n"
      "</head>\n<body>\n{}</body>\n</html>\n",
      escaped(title), kStyle, body);
}

}  // namespace sherd::detail

// SPDX-License-Identifier: Apache-2.0
#include "proof/report_html.h"

#include <fmt/format.h>

#include "base/html.h"

namespace trivet::proof {
namespace {

constexpr const char* kStyle =
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:72em;padding:0 1em;color:#1b1f24}"
    "table{border-collapse:collapse;width:100%;margin:1em 0}th,td{border:1px solid #d0d7de;padding:.35em .6em;"
    "text-align:left;vertical-align:top;overflow-wrap:anywhere}th{background:#f6f8fa}"
    ".ok{color:#116329}.bad{color:#a40e26}code{font-size:90%}";

std::string Text(const Json& value) {
  if (value.is_null()) return "";
  return EscapeHtml(value.is_string() ? value.get<std::string>() : DumpJson(value));
}

std::string VerdictCell(const Json& entry) {
  const bool passed = Member(entry, "verdict") == 0;
  return fmt::format("<td class=\"{}\">{} ({})</td>", passed ? "ok" : "bad", Text(Member(entry, "name")),
                     Text(Member(entry, "verdict")));
}

// An object as rows of a table; objects in it are tables.
std::string Table(const Json& object) {
  std::string rows;
  for (const auto& [key, value] : object.items()) {
    const std::string cell = value.is_object() ? Table(value) : "<code>" + Text(value) + "</code>";
    rows += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", EscapeHtml(key), cell);
  }
  return "<table>" + rows + "</table>";
}

std::string RunRows(const Json& runs) {
  std::string rows;
  for (const Json& run : runs) {
    const Json& counts = Member(run, "counts");
    rows += fmt::format("<tr><td><code>{}</code></td>{}<td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                        Text(Member(run, "run")), VerdictCell(run), Text(Member(counts, "ranks")),
                        Text(Member(counts, "decisions")), Text(Member(counts, "boundary_digests")),
                        Text(Member(counts, "logits_rows")));
  }
  return rows;
}

std::string ComparisonRows(const Json& comparisons) {
  std::string rows;
  for (const Json& one : comparisons) {
    rows += fmt::format("<tr><td><code>{}</code></td>{}<td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                        Text(Member(one, "b")), VerdictCell(one), Text(Member(one, "dimensions")),
                        Text(Member(one, "decisions")), Text(Member(one, "boundary_digests")),
                        Text(Member(one, "logits_bytes")));
  }
  return rows;
}

}  // namespace

std::string ReportHtml(const Json& report) {
  const bool passed = Member(report, "verdict") == 0;
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>trivet verify</title><style>{}</style>\n"
      "<h1>trivet verify: <span class=\"{}\">{}</span></h1>\n",
      kStyle, passed ? "ok" : "bad", Text(Member(report, "name")));
  if (const Json* finding = Find(report, "finding")) {
    page += fmt::format("<p>{}</p>\n{}\n", Text(Member(*finding, "message")), Table(*finding));
  }
  page +=
      "<h2>Runs</h2>\n<table><tr><th>run</th><th>verdict</th><th>ranks</th><th>decisions</th><th>boundary digests</th>"
      "<th>rows of logits</th></tr>\n" +
      RunRows(Member(report, "runs")) + "</table>\n";
  if (!Member(report, "comparisons").empty()) {
    page +=
        "<h2>Compared with the first</h2>\n<table><tr><th>run</th><th>verdict</th><th>layouts differ along</th>"
        "<th>decisions</th><th>boundary digests</th><th>bytes of logits</th></tr>\n" +
        ComparisonRows(Member(report, "comparisons")) + "</table>\n";
  }
  return page + "</html>\n";
}

}  // namespace trivet::proof

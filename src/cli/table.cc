#include "cli/table.h"

#include <algorithm>
#include <utility>

#include "cli/terminal.h"

namespace shardwright::cli {
namespace {

constexpr size_t kGap = 2, kNarrowest = 12;

/// Takes columns from the widest flexible one until the row fits or all are as narrow as they may be.
void fit(std::span<const Column> columns, std::vector<size_t>& widths, size_t width) {
  size_t total = kGap * (columns.size() - 1);
  for (size_t w : widths) total += w;
  while (total > width) {
    size_t widest = columns.size();
    for (size_t c = 0; c < columns.size(); ++c) {
      if (columns[c].flexible && widths[c] > kNarrowest && (widest == columns.size() || widths[c] > widths[widest]))
        widest = c;
    }
    if (widest == columns.size()) return;
    --widths[widest];
    --total;
  }
}

/// What all cells of a column begin and end with: it tells no row from another, so it is cut away first.
struct Common {
  std::string prefix, suffix;
  bool seen = false;

  void add(std::string_view text) {
    if (!seen) {
      prefix = suffix = text;
      seen = true;
      return;
    }
    prefix.resize(static_cast<size_t>(std::ranges::mismatch(prefix, text).in1 - prefix.begin()));
    auto [in_suffix, in_text] = std::mismatch(suffix.rbegin(), suffix.rend(), text.rbegin(), text.rend());
    suffix.erase(suffix.begin(), in_suffix.base());
  }
  /// Only whole words, and only where there is much of them.
  void settle() {
    constexpr std::string_view kSeparators = "./-_";
    size_t last = prefix.find_last_of(kSeparators), first = suffix.find_first_of(kSeparators);
    prefix.resize(last == std::string::npos || last < 3 ? 0 : last + 1);
    suffix.erase(0, first == std::string::npos || suffix.size() - first < 4 ? suffix.size() : first);
  }
  size_t saved() const { return (prefix.empty() ? 0 : prefix.size() - 1) + (suffix.empty() ? 0 : suffix.size() - 1); }
  std::string cut(std::string text, bool utf8) const {
    if (saved() == 0 || text.size() <= prefix.size() + suffix.size()) return text;
    std::string ellipsis = utf8 ? "\u2026" : "~";
    return (prefix.empty() ? "" : ellipsis) + text.substr(prefix.size(), text.size() - prefix.size() - suffix.size()) +
           (suffix.empty() ? "" : ellipsis);
  }
};

/// Which columns are printed without what their cells have in common: as few as make the table fit, and never the first, which says
/// what a row is about.
std::vector<Common> shorten(std::span<const Column> columns, std::vector<Common> common, std::vector<size_t>& widths,
                            size_t width) {
  size_t total = kGap * (columns.size() - 1);
  for (size_t w : widths) total += w;
  for (size_t c = columns.size(); c-- > 0;) {
    common[c].settle();
    if (c == 0 || total <= width || !columns[c].flexible || common[c].saved() == 0) {
      common[c] = {};
      continue;
    }
    size_t before = widths[c];
    widths[c] = std::max(columns[c].title.size(), before - common[c].saved());
    total -= before - widths[c];
  }
  return common;
}

void print_row(Output& output, std::span<const Column> columns, const std::vector<size_t>& widths,
               const std::vector<std::string>& cells, const std::vector<Common>& common, bool title) {
  std::string& out = output.buffer();
  size_t owed = 0;  // blanks before the next cell; none are left at the end of a line
  for (size_t c = 0; c < columns.size(); ++c) {
    std::string text = printable(cells[c]);
    if (!title) text = common[c].cut(std::move(text), output.utf8());
    if (output.width() != 0 && columns[c].flexible)
      text = cut_middle(text, std::max<size_t>(widths[c], 3), output.utf8());
    size_t taken = display_width(text), blank = widths[c] > taken ? widths[c] - taken : 0;
    if (text.empty()) {
      owed += widths[c] + kGap;
      continue;
    }
    out.append(owed + (columns[c].right ? blank : 0), ' ');
    out += output.styled(text, title ? Style::kBold : columns[c].style);
    owed = kGap + (columns[c].right ? 0 : blank);
  }
  out += '\n';
  output.flush_if_full();
}

}  // namespace

void print_table(Output& output, std::span<const Column> columns, size_t rows,
                 const std::function<void(size_t row, std::vector<std::string>& cells)>& fill) {
  std::vector<std::string> cells(columns.size()), titles;
  std::vector<size_t> widths(columns.size());
  bool titled = false;
  for (size_t c = 0; c < columns.size(); ++c) {
    titles.emplace_back(columns[c].title);
    widths[c] = columns[c].title.size();
    titled = titled || !columns[c].title.empty();
  }
  std::vector<Common> common(columns.size());
  for (size_t row = 0; row < rows; ++row) {
    fill(row, cells);
    for (size_t c = 0; c < columns.size(); ++c) {
      std::string text = printable(cells[c]);
      widths[c] = std::max(widths[c], display_width(text));
      if (columns[c].flexible && rows > 1 && output.width() != 0) common[c].add(text);
    }
  }
  if (output.width() != 0) {
    common = shorten(columns, std::move(common), widths, output.width());
    fit(columns, widths, output.width());
  }
  if (titled) print_row(output, columns, widths, titles, common, true);
  for (size_t row = 0; row < rows && !output.broken(); ++row) {
    fill(row, cells);
    print_row(output, columns, widths, cells, common, false);
  }
}

}  // namespace shardwright::cli

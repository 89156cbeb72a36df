#include "cli/table.h"

#include <algorithm>

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

void print_row(Output& output, std::span<const Column> columns, const std::vector<size_t>& widths,
               const std::vector<std::string>& cells, bool title) {
  std::string& out = output.buffer();
  size_t owed = 0;  // blanks before the next cell; none are left at the end of a line
  for (size_t c = 0; c < columns.size(); ++c) {
    std::string text = printable(cells[c]);
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
  for (size_t row = 0; row < rows; ++row) {
    fill(row, cells);
    for (size_t c = 0; c < columns.size(); ++c) widths[c] = std::max(widths[c], display_width(printable(cells[c])));
  }
  if (output.width() != 0) fit(columns, widths, output.width());
  if (titled) print_row(output, columns, widths, titles, true);
  for (size_t row = 0; row < rows && !output.broken(); ++row) {
    fill(row, cells);
    print_row(output, columns, widths, cells, false);
  }
}

}  // namespace shardwright::cli

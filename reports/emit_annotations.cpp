// Rows that went wrong, as annotations.
#include "reports/annotations.hpp"
#include "reports/emit.hpp"
#include "reports/named_rows.hpp"

namespace attnbench::reports {

std::string emit_annotations(const Document& document, const EmitOptions&) {
  std::vector<annotations::Annotation> errors;
  for (const auto& [row, name] : named_rows(document)) {
    const bool wrong = row->status == status::kIncorrect || row->status == status::kFailed ||
                       row->status == status::kTimeout || row->status == status::kDeviceLost;
    if (wrong) errors.push_back({"attnbench " + row->status, name + ": " + row->reason});
  }
  return annotations::lines("error", errors);
}

}  // namespace attnbench::reports

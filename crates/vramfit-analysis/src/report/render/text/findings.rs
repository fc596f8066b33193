//! Lint findings for a terminal.

use vramfit_base::text::wrap;

use super::WIDTH;
use crate::bytes::Bytes;
use crate::lint::{Finding, Severity};

/// Renders each finding: what is wrong, what it costs, how to fix it.
pub(in crate::report) fn render(findings: &[Finding]) -> String {
    let mut lines = Vec::new();
    for finding in findings {
        let Finding { id, severity, .. } = finding;
        // The variable comes first, unless the sentence names it.
        let subject = if finding.message.contains(&finding.subject) {
            String::new()
        } else {
            format!("`{}`: ", finding.subject)
        };
        let head = format!("{}[{id}]: {subject}{}", severity.label(), finding.message);
        lines.extend(wrap(&head, WIDTH, 2));
        if let Some(cost) = finding.cost_bytes.filter(|_| *severity != Severity::Note) {
            lines.push(format!("  cost: {} per GPU", Bytes(cost)));
        }
        let fix = wrap(&format!("fix: {}", finding.fix), WIDTH - 2, 5);
        lines.extend(fix.into_iter().map(|line| format!("  {line}")));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_has_its_sentence_and_its_fix_in_eighty_columns() {
        let finding = Finding {
            id: "insufficient-headroom",
            severity: Severity::Warning,
            subject: "XLA_CLIENT_MEM_FRACTION".to_owned(),
            message:
                "0.95 of GPU 0 (NVIDIA GeForce RTX 3060 Ti)'s 8.0 GiB leaves 409.6 MiB for the \
                      CUDA context and libraries, which need about 640.0 MiB"
                    .to_owned(),
            fix: "write `XLA_CLIENT_MEM_FRACTION=0.91`".to_owned(),
            cost_bytes: Some(241_591_910),
            changes: Vec::new(),
        };
        let text = render(&[finding.clone(), finding]);
        let expected = "\
warning[insufficient-headroom]: `XLA_CLIENT_MEM_FRACTION`: 0.95 of GPU 0 (NVIDIA
  GeForce RTX 3060 Ti)'s 8.0 GiB leaves 409.6 MiB for the CUDA context and
  libraries, which need about 640.0 MiB
  cost: 230.4 MiB per GPU
  fix: write `XLA_CLIENT_MEM_FRACTION=0.91`";
        assert_eq!(text, format!("{expected}\n{expected}"));
        assert_eq!(render(&[]), "");
    }
}

//! What a package asks of another, as Python packages write it: `nvidia-cudnn-cu13<10.0,>=9.12.0.46`.

/// A package and the versions of it that will do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Requirement {
    /// Its name in lower case with dashes.
    pub(super) name: String,
    /// The versions as they are written; empty when any will do.
    pub(super) versions: String,
    clauses: Vec<(String, Vec<u64>)>,
}

impl Requirement {
    /// Reads one; what follows a semicolon says when it counts, and is the caller's business.
    pub(super) fn parse(text: &str) -> Option<Requirement> {
        let text = text.split(';').next()?.trim();
        let end = text
            .find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)))
            .unwrap_or(text.len());
        let (name, versions) = text.split_at(end);
        let versions = versions.trim().trim_matches(['(', ')']).trim();
        if name.is_empty() {
            return None;
        }
        let clauses = versions
            .split(',')
            .map(str::trim)
            .filter(|clause| !clause.is_empty())
            .filter_map(|clause| {
                let at = clause.find(|c: char| c.is_ascii_digit())?;
                let (operator, version) = clause.split_at(at);
                Some((operator.trim().to_owned(), numbers(version)?))
            })
            .collect();
        Some(Requirement {
            name: name.to_ascii_lowercase().replace(['_', '.'], "-"),
            versions: versions.to_owned(),
            clauses,
        })
    }

    /// Returns `true` if a version will do; one that cannot be read, or a clause that is not known, will.
    pub(super) fn accepts(&self, version: &str) -> bool {
        let Some(version) = numbers(version) else {
            return true;
        };
        self.clauses.iter().all(|(operator, wanted)| {
            let order = compare(&version, wanted);
            match operator.as_str() {
                ">=" => order.is_ge(),
                ">" => order.is_gt(),
                "<=" => order.is_le(),
                "<" => order.is_lt(),
                "==" => order.is_eq(),
                "!=" => order.is_ne(),
                _ => true,
            }
        })
    }
}

/// Returns the numbers at the beginning of a version: `13.0.48` of `13.0.48rc1`.
pub(super) fn numbers(version: &str) -> Option<Vec<u64>> {
    let mut all = Vec::new();
    for part in version.trim().split('.') {
        let digits = part.find(|c: char| !c.is_ascii_digit());
        let Ok(number) = part[..digits.unwrap_or(part.len())].parse() else {
            break;
        };
        all.push(number);
        if digits.is_some() {
            break;
        }
    }
    (!all.is_empty()).then_some(all)
}

/// Compares two versions; missing numbers are zeros.
pub(super) fn compare(a: &[u64], b: &[u64]) -> std::cmp::Ordering {
    let length = a.len().max(b.len());
    let at = |version: &[u64], place: usize| version.get(place).copied().unwrap_or(0);
    (0..length)
        .map(|place| at(a, place).cmp(&at(b, place)))
        .find(|order| order.is_ne())
        .unwrap_or(std::cmp::Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_are_read_as_pip_reads_them() {
        let text = "nvidia_cudnn-cu13<10.0,>=9.12.0.46; sys_platform == \"linux\" and extra == \"with-cuda\"";
        let requirement = Requirement::parse(text).expect("a requirement");
        assert_eq!(requirement.name, "nvidia-cudnn-cu13");
        for (version, answer) in [
            ("9.12.0.46", true),
            ("9.13", true),
            ("9.12.0.45", false),
            ("9.12", false),
            ("10.0", false),
            ("nonsense", true),
        ] {
            assert_eq!(requirement.accepts(version), answer, "{version}");
        }
        let any = Requirement::parse("nvidia-nvvm; extra == \"with-cuda\"").expect("one");
        assert!(any.accepts("1") && any.versions.is_empty());
        let exact = Requirement::parse("jax-cuda13-pjrt (==0.10.2)").expect("one");
        assert!(exact.accepts("0.10.2") && !exact.accepts("0.10.20"));
        assert_eq!(Requirement::parse("; extra"), None);
    }

    #[test]
    fn versions_are_compared_by_number() {
        let of = |text| numbers(text).expect("numbers");
        assert!(compare(&of("580.65.06"), &of("580.9")).is_gt());
        assert!(compare(&of("13.0"), &of("13")).is_eq());
        assert_eq!(numbers("0.10.2rc1"), Some(vec![0, 10, 2]));
        assert_eq!(numbers("rc1"), None);
    }
}

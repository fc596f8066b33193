//! Which known words are nearest to a mistyped one.

/// Returns up to three candidates a reader may have meant, best first.
pub fn nearest<'a>(wanted: &str, candidates: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    // A third of the letters may be wrong: `h10-80g` is a slip, `tpu-v4` is something else.
    let limit = (wanted.chars().count() / 3).max(1);
    let mut ranked: Vec<(usize, &str)> = candidates
        .map(|candidate| {
            // Someone who types `h200-sxm-141` knows the GPU and not our spelling of its size.
            let starts = wanted.len() >= 2
                && (candidate.starts_with(wanted) || wanted.starts_with(candidate));
            (if starts { 1 } else { edit_distance(wanted, candidate) }, candidate)
        })
        .filter(|(distance, _)| *distance <= limit)
        .collect();
    ranked.sort_by_key(|(distance, candidate)| (*distance, candidate.len()));
    ranked.into_iter().map(|(_, candidate)| candidate).take(3).collect()
}

/// Returns the candidate that differs from a name by the fewest letters, if by no more than one in
/// eight: long names in capitals have many parts in common, and a slip is not another name.
pub fn correct_misspelling<'a>(
    wanted: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let limit = (wanted.chars().count() / 8).max(1);
    candidates
        .filter(|candidate| candidate.len().abs_diff(wanted.len()) <= limit)
        .map(|candidate| (edit_distance(wanted, candidate), candidate))
        .filter(|(distance, _)| (1..=limit).contains(distance))
        .min()
        .map(|(_, candidate)| candidate)
}

/// Counts the insertions, deletions, replacements and swaps of neighbors between two words.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_single_slips_as_one() {
        for (a, b, distance) in [
            ("h100", "h100", 0),
            ("h10", "h100", 1),
            ("h1000", "h100", 1),
            ("g100", "h100", 1),
            ("1h00", "h100", 1),
            ("", "h100", 4),
        ] {
            assert_eq!(edit_distance(a, b), distance, "{a} {b}");
        }
    }
}

//! Samples against their definitions.

use proptest::prelude::*;

use super::*;

/// Returns what a sample is by its definition: for each of its rows the row of its series, if there is one.
fn by_definition(start: i64, length: u64, available: u64) -> Vec<Option<u64>> {
    let rows = (0..length as i64).map(|at| start + at);
    rows.map(|row| u64::try_from(row).ok().filter(|row| *row < available)).collect()
}

fn spelled_out(span: &Span, base: u64, length: u64) -> Vec<Option<u64>> {
    let real = |at: &u64| span.real.contains(at);
    let row = |at: u64| span.rows.start - base + at - span.real.start;
    (0..length).map(|at| real(&at).then(|| row(at))).collect()
}

fn make_series(lengths: &[[u64; 2]]) -> Vec<Series> {
    let mut start = 0;
    let series = lengths.iter().map(|lengths| {
        let rows = start..start + lengths[0].max(lengths[1]);
        start = rows.end;
        Series { rows, lengths: Some((*lengths).into()) }
    });
    series.collect()
}

proptest! {
    #[test]
    fn windows_are_what_they_are_defined_to_be(
        lengths in prop::collection::vec(prop::array::uniform2(0_u64..12), 1..8),
        stride in 1_u64..5,
        spans in prop::array::uniform2((-4_i64..5, 1_u64..6)),
        padding in prop::sample::select(vec![Padding::None, Padding::Zeros, Padding::Repeat]),
    ) {
        let spans = spans.map(|(shift, length)| ColumnSpan { shift, length, per_sample: false });
        let series = make_series(&lengths);
        let index = SampleIndex::windows(series.clone(), stride, padding, spans.to_vec());
        let mut expected = Vec::new();
        for (series, lengths) in series.iter().zip(&lengths) {
            let starts = (0..40).map(|number| number * stride as i64);
            let first = match padding {
                Padding::None => spans.iter().map(|span| -span.shift).max().unwrap().max(0),
                _ => 0,
            };
            for start in starts.map(|start| start + first) {
                let rows: Vec<_> = (spans.iter().zip(lengths))
                    .map(|(span, length)| by_definition(start + span.shift, span.length, *length))
                    .collect();
                let is_one = match padding {
                    Padding::None => rows.iter().flatten().all(Option::is_some),
                    _ => (start as u64) < lengths[0].min(lengths[1]),
                };
                if is_one {
                    expected.push((series.rows.start, *lengths, rows, start));
                }
            }
        }
        prop_assert_eq!(index.len(), expected.len() as u64);
        for (sample, (base, lengths, columns, start)) in expected.iter().enumerate() {
            for (column, rows) in columns.iter().enumerate() {
                let span = index.span(sample as u64, column);
                prop_assert_eq!(&spelled_out(&span, *base, spans[column].length), rows);
                if span.real.is_empty() && padding == Padding::Repeat {
                    let nearest = (start + spans[column].shift).max(0).min(lengths[column] as i64 - 1);
                    prop_assert_eq!(span.rows.clone(), base + nearest as u64..base + nearest as u64 + 1);
                }
            }
        }
        for count in 1..=index.len() {
            for first in 0..=index.len() - count {
                for column in 0..2 {
                    let rows = index.rows_of(first..first + count, column);
                    prop_assert!(rows.len() <= index.max_rows_of(count, column));
                }
            }
        }
    }

    #[test]
    fn ragged_samples_lie_between_their_bounds(
        segments in prop::collection::vec(prop::collection::vec(0_u64..9, 0..8), 1..5),
        limit in 1_u64..9,
    ) {
        let (mut bounds, mut expected, mut row) = (Vec::new(), Vec::new(), 0);
        for lengths in &segments {
            // Rows that belong to no sample.
            row += 3;
            bounds.push(row);
            for length in lengths {
                expected.push((row, *length));
                row += length;
                bounds.push(row);
            }
        }
        let samples: Vec<u64> = segments.iter().map(|lengths| lengths.len() as u64).collect();
        let span = ColumnSpan { shift: 0, length: limit, per_sample: false };
        let index = SampleIndex::ragged(bounds, &samples, vec![span]);
        prop_assert_eq!(index.len(), expected.len() as u64);
        for (sample, (start, length)) in expected.iter().enumerate() {
            let found = index.span(sample as u64, 0);
            let rows = by_definition(0, limit, *length);
            prop_assert_eq!(spelled_out(&found, *start, limit), rows);
        }
        for count in 1..=index.len() {
            for first in (0..index.len()).step_by(count as usize) {
                let rows = index.rows_of(first..(first + count).min(index.len()), 0);
                prop_assert!(rows.len() <= index.max_rows_of(count, 0));
            }
        }
    }
}

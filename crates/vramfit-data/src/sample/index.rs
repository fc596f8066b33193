//! Which rows each sample has.

use std::ops::Range;

use super::options::Padding;
use super::row_ranges::RowRanges;
use super::series::{Series, SeriesTable};

/// Which rows of its column a sample has, counted from where the sample is in its series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnSpan {
    /// Rows from there to the first one.
    pub shift: i64,
    /// Rows of a sample, real ones and padding.
    pub length: u64,
    /// Whether the column has one row for each sample, whatever the rows of the others are.
    pub per_sample: bool,
}

impl ColumnSpan {
    /// The row where the sample is.
    pub const ROW: ColumnSpan = ColumnSpan { shift: 0, length: 1, per_sample: false };
}

/// The rows of one column that a sample has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The rows that are read; none if the sample has only zeros.
    pub rows: Range<u64>,
    /// Which rows of the sample are these. It is empty if the one row of `rows` is repeated in a sample that has no
    /// row of its series.
    pub real: Range<u64>,
}

/// All samples, in the order of their rows.
#[derive(Clone, Debug)]
pub struct SampleIndex {
    kind: SampleKind,
    padding: Padding,
    spans: Vec<ColumnSpan>,
    /// Where the parts of packed samples begin, and where the last one ends.
    parts: Option<Vec<u64>>,
}

#[derive(Clone, Debug)]
enum SampleKind {
    /// Every row is a sample.
    Rows(u64),
    Windows {
        series: SeriesTable,
        stride: u64,
        /// Where the first sample of a series is in it.
        first: u64,
    },
    Groups(SeriesTable),
    Ragged {
        /// Where each sample begins and where the last one ends, segment by segment.
        bounds: Vec<u64>,
        /// How many samples come before each segment, and then the total.
        first_samples: Vec<u64>,
    },
}

impl SampleIndex {
    /// Every row of `columns` columns is a sample.
    pub fn rows(rows: u64, columns: usize) -> SampleIndex {
        let spans = vec![ColumnSpan::ROW; columns];
        SampleIndex { kind: SampleKind::Rows(rows), padding: Padding::None, spans, parts: None }
    }

    /// Samples are `stride` rows apart. Without padding every column has all of its rows; with padding, there is one
    /// for every `stride` rows that all columns have.
    pub fn windows(
        series: Vec<Series>,
        stride: u64,
        padding: Padding,
        spans: Vec<ColumnSpan>,
    ) -> SampleIndex {
        let first = match padding {
            Padding::None => spans.iter().map(|span| (-span.shift).max(0)).max().unwrap_or(0),
            Padding::Zeros | Padding::Repeat => 0,
        };
        let end = |one: &Series| {
            let ends = spans.iter().enumerate().map(|(column, span)| {
                let length = one.length(column);
                match padding {
                    // It may be negative where the series is shorter than a window.
                    Padding::None => {
                        i128::from(length) - i128::from(span.shift) - i128::from(span.length) + 1
                    }
                    Padding::Zeros | Padding::Repeat => i128::from(length),
                }
            });
            ends.min().unwrap_or(0)
        };
        let count = |one: &Series| {
            let starts = (end(one) - i128::from(first)).max(0) as u64;
            starts.div_ceil(stride)
        };
        let series = SeriesTable::new(series, count);
        let kind = SampleKind::Windows { series, stride, first: first as u64 };
        SampleIndex { kind, padding, spans, parts: None }
    }

    /// Windows of which two rows belong together if they are in the same part.
    pub fn packed(series: Vec<Series>, parts: Vec<u64>, spans: Vec<ColumnSpan>) -> SampleIndex {
        let length = spans.first().map_or(1, |span| span.length);
        let index = SampleIndex::windows(series, length, Padding::Zeros, spans);
        SampleIndex { parts: Some(parts), ..index }
    }

    /// Every series is a sample.
    pub fn groups(series: Vec<Series>, padding: Padding, spans: Vec<ColumnSpan>) -> SampleIndex {
        let series = SeriesTable::new(series, |_| 1);
        SampleIndex { kind: SampleKind::Groups(series), padding, spans, parts: None }
    }

    /// A sample has the rows between two consecutive bounds of a segment. `samples` has the number of samples of each
    /// segment, and `bounds` one bound more for each.
    pub fn ragged(bounds: Vec<u64>, samples: &[u64], spans: Vec<ColumnSpan>) -> SampleIndex {
        let mut total = 0;
        let first_samples = std::iter::once(0).chain(samples.iter().map(|samples| {
            total += samples;
            total
        }));
        let kind = SampleKind::Ragged { first_samples: first_samples.collect(), bounds };
        SampleIndex { kind, padding: Padding::Zeros, spans, parts: None }
    }

    /// Returns the number of samples.
    pub fn len(&self) -> u64 {
        match &self.kind {
            SampleKind::Rows(rows) => *rows,
            SampleKind::Windows { series, .. } | SampleKind::Groups(series) => series.samples(),
            SampleKind::Ragged { first_samples, .. } => first_samples[first_samples.len() - 1],
        }
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the number of a sample is the number of its row, in every column.
    pub fn is_rows(&self) -> bool {
        matches!(self.kind, SampleKind::Rows(_))
    }

    /// Whether a sample is so much that each is read by itself.
    pub fn is_groups(&self) -> bool {
        matches!(self.kind, SampleKind::Groups(_))
    }

    /// Whether samples are windows of series, or shifted rows.
    pub fn is_windows(&self) -> bool {
        matches!(self.kind, SampleKind::Windows { .. })
    }

    /// Returns the rows from the first to the last one that a window has in any column. Later samples do not begin or end
    /// before.
    pub fn extent(&self, sample: u64) -> Range<u64> {
        let SampleKind::Windows { series, stride, first } = &self.kind else {
            return sample..sample + 1;
        };
        let (series, number) = series.find(sample);
        let place = (first + number * stride) as i64;
        let ends = self.spans.iter().enumerate().map(|(column, span)| {
            let last = i64::try_from(series.length(column)).unwrap_or(i64::MAX);
            let start = place + span.shift;
            let end = start.saturating_add_unsigned(span.length);
            (start.clamp(0, last) as u64, end.clamp(0, last) as u64)
        });
        let start = ends.clone().map(|(start, _)| start).min().unwrap_or(0);
        let end = ends.map(|(_, end)| end).max().unwrap_or(0);
        series.rows.start + start..series.rows.start + end
    }

    /// Returns the samples of each segment, if samples are ragged.
    pub fn ragged_segments(&self) -> Option<&[u64]> {
        match &self.kind {
            SampleKind::Ragged { first_samples, .. } => Some(first_samples),
            _ => None,
        }
    }

    /// Whether a sample may have rows that are padding.
    pub fn has_padding(&self) -> bool {
        match &self.kind {
            SampleKind::Rows(_) => false,
            SampleKind::Windows { .. } => self.padding != Padding::None,
            SampleKind::Groups(_) | SampleKind::Ragged { .. } => true,
        }
    }

    /// Returns what a sample has where there are no rows.
    pub fn padding(&self) -> Padding {
        self.padding
    }

    /// Returns the span of each column.
    pub fn spans(&self) -> &[ColumnSpan] {
        &self.spans
    }

    /// Returns the series, if samples are in some.
    pub fn series(&self) -> Option<&SeriesTable> {
        match &self.kind {
            SampleKind::Windows { series, .. } | SampleKind::Groups(series) => Some(series),
            SampleKind::Rows(_) | SampleKind::Ragged { .. } => None,
        }
    }

    /// Returns where the parts of packed samples begin, and where the last one ends.
    pub fn parts(&self) -> Option<&[u64]> {
        self.parts.as_deref()
    }

    /// Returns the rows of a column that a sample has.
    #[inline]
    pub fn span(&self, sample: u64, column: usize) -> Span {
        let span = self.spans[column];
        if span.per_sample {
            return Span { rows: sample..sample + 1, real: 0..1 };
        }
        match &self.kind {
            SampleKind::Rows(_) => Span { rows: sample..sample + 1, real: 0..1 },
            SampleKind::Windows { series, stride, first } => {
                let (series, number) = series.find(sample);
                let start = (first + number * stride) as i64 + span.shift;
                self.clip(start, span.length, series.rows.start, series.length(column))
            }
            SampleKind::Groups(series) => {
                let (series, _) = series.find(sample);
                self.clip(0, span.length, series.rows.start, series.length(column))
            }
            SampleKind::Ragged { bounds, first_samples } => {
                let place = ragged_place(first_samples, sample);
                let (start, end) = (bounds[place], bounds[place + 1]);
                self.clip(0, span.length, start, end - start)
            }
        }
    }

    /// Clips a sample of `length` rows from row `start` of a series on, which has `available` rows from `base` on.
    #[inline]
    fn clip(&self, start: i64, length: u64, base: u64, available: u64) -> Span {
        let end = start.saturating_add_unsigned(length);
        let last = i64::try_from(available).unwrap_or(i64::MAX);
        let (from, to) = (start.clamp(0, last), end.clamp(0, last));
        if from < to {
            let real = (from - start) as u64..(to - start) as u64;
            return Span { rows: base + from as u64..base + to as u64, real };
        }
        let nearest = base + (from as u64).min(available.saturating_sub(1));
        let repeated = u64::from(self.padding == Padding::Repeat && available > 0);
        Span { rows: nearest..nearest + repeated, real: 0..0 }
    }

    /// Returns the rows of a column that samples have, which are in ascending order.
    pub fn rows_of(&self, samples: impl IntoIterator<Item = u64>, column: usize) -> RowRanges {
        samples.into_iter().map(|sample| self.span(sample, column).rows).collect()
    }

    /// Returns a number of rows of a column that `samples` consecutive samples do not exceed together, wherever they
    /// begin at a multiple of this number.
    pub fn max_rows_of(&self, samples: u64, column: usize) -> u64 {
        let span = self.spans[column];
        let samples = samples.min(self.len());
        if span.per_sample || samples == 0 {
            return samples;
        }
        match &self.kind {
            SampleKind::Rows(_) => samples,
            SampleKind::Windows { series, stride, .. } => {
                let step = span.length.min(*stride);
                let series = series.max_series_of(samples);
                let ends = series.saturating_mul(span.length - step);
                // Rows that are repeated for samples that have none are among those of other samples, or one each.
                samples.saturating_mul(step).saturating_add(ends)
            }
            SampleKind::Groups(_) => samples.saturating_mul(span.length),
            SampleKind::Ragged { bounds, first_samples } => {
                let rows = (0..self.len()).step_by(samples as usize).map(|first| {
                    let last = (first + samples).min(self.len()) - 1;
                    let end = bounds[ragged_place(first_samples, last) + 1];
                    end - bounds[ragged_place(first_samples, first)]
                });
                rows.max().unwrap_or(0).min(samples.saturating_mul(span.length))
            }
        }
    }

    /// Returns about how many rows of a column an epoch reads, each as often as samples do not share it.
    pub fn distinct_rows(&self, column: usize) -> u64 {
        let span = self.spans[column];
        match &self.kind {
            _ if span.per_sample => self.len(),
            SampleKind::Rows(rows) => *rows,
            SampleKind::Windows { stride, .. } => {
                self.len().saturating_mul(span.length.min(*stride))
            }
            SampleKind::Groups(series) => {
                let lengths = series.series().iter().map(|one| one.length(column).min(span.length));
                lengths.fold(0, u64::saturating_add)
            }
            SampleKind::Ragged { bounds, .. } => {
                let all = bounds[bounds.len() - 1] - bounds[0];
                all.min(self.len().saturating_mul(span.length))
            }
        }
    }

    /// Returns the bytes of memory that it takes.
    pub fn bytes(&self) -> u64 {
        let parts = self.parts.as_ref().map_or(0, Vec::len) as u64 * 8;
        parts
            + match &self.kind {
                SampleKind::Rows(_) => 0,
                SampleKind::Windows { series, .. } | SampleKind::Groups(series) => series.bytes(),
                SampleKind::Ragged { bounds, first_samples } => {
                    (bounds.len() + first_samples.len()) as u64 * 8
                }
            }
    }
}

/// Returns where among all bounds a sample begins: every segment before it has one bound more than samples.
#[inline]
fn ragged_place(first_samples: &[u64], sample: u64) -> usize {
    let segments_before = match first_samples.len() {
        2 => 0,
        _ => first_samples.partition_point(|&first| first <= sample) - 1,
    };
    sample as usize + segments_before
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;

//! What a sample is in the files of a loader: the lengths of their datasets against the options.

use vramfit_base::{Error, Result};

use super::bounds::Bounds;
use super::column::{Column, refusal};
use super::derived::{DerivedColumn, DerivedKind};
use super::options::LoaderOptions;
use super::segments::Segment;
use crate::digest::digest;
use crate::sample::{Padding, SampleIndex, SampleOptions, Series, Within};

/// Longer samples, and shifts of more rows, are mistakes.
const MAX_ROWS: u64 = 1 << 40;

/// Returns a number for what a sample is, or none if it is a row as the file has it.
pub(super) fn hash(options: &LoaderOptions) -> Option<u64> {
    let shape = |column: &super::ColumnOptions| (column.shift, column.length, column.per_sample);
    let columns: Vec<_> = options.columns.iter().map(shape).collect();
    let is_row = columns.iter().all(|column| *column == (0, None, false));
    let normalized = options.columns.iter().enumerate().filter_map(|(number, column)| {
        let numbers = column.normalization.as_ref()?.numbers();
        Some((number, numbers.collect()))
    });
    let normalized: Vec<(usize, Vec<u64>)> = normalized.collect();
    let on_last_axis = options.columns.iter().enumerate();
    let on_last_axis = on_last_axis.filter(|(_, column)| column.is_last_axis);
    let on_last_axis: Vec<usize> = on_last_axis.map(|(number, _)| number).collect();
    let is_plain = is_row
        && on_last_axis.is_empty()
        && !options.trim
        && !options.unpack
        && normalized.is_empty();
    if options.samples == SampleOptions::Rows && is_plain {
        return None;
    }
    let text = serde_json::to_string(&(
        &options.samples,
        columns,
        (options.trim, options.unpack),
        normalized,
    ));
    let mut text = text.unwrap_or_default();
    if !on_last_axis.is_empty() {
        text += &format!("{on_last_axis:?}");
    }
    Some(digest(text.as_bytes()))
}

/// Returns which rows each sample has, and the columns that follow from that.
///
/// # Errors
/// `invalid-argument` when the datasets do not have the rows that the options ask for.
pub(super) fn index_samples(
    options: &LoaderOptions,
    columns: &mut [Column],
    segments: &[Segment],
    bounds: &mut Bounds,
) -> Result<(Vec<DerivedColumn>, SampleIndex)> {
    ensure_sensible(options)?;
    for (number, column) in columns.iter().enumerate() {
        if segments.iter().all(|segment| segment.lengths[number] == 0) {
            return Err(refusal(format!("dataset `{}` has no rows", column.name())));
        }
    }
    let samples = match &options.samples {
        SampleOptions::Rows => index_rows(options, columns, segments)?,
        SampleOptions::Windows { length, stride, padding, within, .. } => {
            for (column, wanted) in columns.iter_mut().zip(&options.columns) {
                column.set_rows(wanted.length.unwrap_or(*length));
            }
            let series = match options.samples.bounds() {
                Some(_) => make_bounded_series(columns, segments, bounds)?,
                None => make_series(options, columns, segments, *within)?,
            };
            SampleIndex::windows(series, *stride, *padding, spans(columns))
        }
        SampleOptions::Groups { length, padding, truncate } => {
            for (number, column) in columns.iter_mut().enumerate() {
                let longest = segments.iter().map(|segment| segment.lengths[number]).max();
                column.set_rows(choose_length(*length, longest.unwrap_or(0), *truncate, column)?);
            }
            let series = segment_series(columns, segments);
            SampleIndex::groups(series, *padding, spans(columns))
        }
        SampleOptions::Ragged { length, truncate, pack, .. } => {
            index_ragged(columns, segments, bounds, (*length, *truncate, *pack))?
        }
    };
    if samples.is_empty() {
        return Err(no_samples(options, columns, segments, &samples));
    }
    if let Some(column) =
        columns.iter().find(|column| column.bytes().is_some() && column.has_axis())
    {
        return Err(Error::unsupported_feature(format!(
            "`{}` is text or bytes, of which a sample has one",
            column.name()
        ))
        .hint("use `samples=Rows()`, or list it in `Ragged(..., per_sample=[...])`"));
    }
    Ok((derive_columns(options, columns, &samples), samples))
}

fn spans(columns: &[Column]) -> Vec<crate::sample::ColumnSpan> {
    columns.iter().map(Column::span).collect()
}

/// Rejects numbers that no sample has.
fn ensure_sensible(options: &LoaderOptions) -> Result<()> {
    let invalid = |what: String, hint: &str| Err(Error::invalid_argument(what).hint(hint));
    let (length, stride) = match &options.samples {
        SampleOptions::Rows => (None, None),
        SampleOptions::Windows { length, stride, .. } => (Some(*length), Some(*stride)),
        SampleOptions::Groups { length, .. } | SampleOptions::Ragged { length, .. } => {
            (*length, None)
        }
    };
    let mut lengths = options.columns.iter().filter_map(|column| column.length).chain(length);
    if let Some(length) = lengths.find(|length| !(1..=MAX_ROWS).contains(length)) {
        return invalid(format!("a sample of {length} rows is not possible"), "use 1 to 2^40 rows");
    }
    if let Some(stride) = stride.filter(|stride| !(1..=MAX_ROWS).contains(stride)) {
        return invalid(format!("a stride of {stride} rows is not possible"), "use 1 to 2^40 rows");
    }
    if let SampleOptions::Windows { axis, within, bounds, .. } = &options.samples {
        if bounds.is_some() && (*axis != 0 || *within != Within::Group || options.trim) {
            let what = "windows within samples of a dataset are of one axis, and of datasets of one length";
            return invalid(what.into(), "leave `axis=1` and `trim` out");
        }
        if *axis > 1 {
            let what = format!("windows along axis {axis} are not read");
            return invalid(what, "use axis 0, or 1 where each place of axis 0 is a series");
        }
        if *axis == 1 && *within != Within::Group {
            let what = "windows along axis 1 do not cross from one place of axis 0 to the next";
            return invalid(what.into(), "use `within=\"group\"`, the default");
        }
    }
    let windows = matches!(options.samples, SampleOptions::Windows { .. });
    let rows = options.samples == SampleOptions::Rows;
    let ragged = matches!(options.samples, SampleOptions::Ragged { .. });
    for column in &options.columns {
        let name = &column.name;
        if column.length.is_some() && !windows {
            let what = format!("`{name}` has a length of its own, but samples are no windows");
            return invalid(what, "use `samples=Windows(length={...})`");
        }
        if column.shift != 0 && !windows && !rows {
            let what = format!("`{name}` is shifted, but samples are neither rows nor windows");
            return invalid(what, "use `samples=Rows()` or `samples=Windows(...)`");
        }
        if column.shift.unsigned_abs() > MAX_ROWS {
            let what = format!("a shift of {} rows is not possible", column.shift);
            return invalid(what, "use the number of rows from one to the other");
        }
        if column.per_sample && !ragged {
            let what = format!("`{name}` has a row for each sample, but samples are not ragged");
            return invalid(what, "use `samples=Ragged(..., per_sample=[...])`");
        }
    }
    if ragged && options.columns.iter().all(|column| column.per_sample) {
        return invalid(
            "no column has ragged samples: all have one row for each".into(),
            "use `samples=Rows()`",
        );
    }
    Ok(())
}

fn index_rows(
    options: &LoaderOptions,
    columns: &[Column],
    segments: &[Segment],
) -> Result<SampleIndex> {
    let series = make_series(options, columns, segments, Within::Group)?;
    let is_shifted = columns.iter().any(|column| column.span().shift != 0);
    if is_shifted || series.iter().any(|series| series.lengths.is_some()) {
        return Ok(SampleIndex::windows(series, 1, Padding::None, spans(columns)));
    }
    let rows = series.last().map_or(0, |series| series.rows.end);
    Ok(SampleIndex::rows(rows, columns.len()))
}

/// Returns the rows that windows do not leave.
fn make_series(
    options: &LoaderOptions,
    columns: &[Column],
    segments: &[Segment],
    within: Within,
) -> Result<Vec<Series>> {
    let series = segment_series(columns, segments);
    let uneven = series.iter().position(|one| one.lengths.is_some());
    if let Some(number) = uneven.filter(|_| !options.trim || within != Within::Group) {
        return Err(different_lengths(columns, &segments[number], options.trim));
    }
    let mut merged: Vec<(u32, Series)> = Vec::new();
    for (segment, series) in segments.iter().zip(series) {
        match merged.last_mut() {
            Some((file, last))
                if within == Within::All || within == Within::File && *file == segment.file =>
            {
                last.rows.end = series.rows.end;
            }
            _ => merged.push((segment.file, series)),
        }
    }
    Ok(merged.into_iter().map(|(_, series)| series).collect())
}

/// Returns the rows between the bounds in each segment.
fn make_bounded_series(
    columns: &[Column],
    segments: &[Segment],
    bounds: &mut Bounds,
) -> Result<Vec<Series>> {
    let all = std::mem::take(&mut bounds.bounds);
    let mut rest = all.as_slice();
    let mut found = Vec::new();
    for (number, series) in segment_series(columns, segments).iter().enumerate() {
        let segment = &segments[number];
        if series.lengths.is_some() {
            return Err(different_lengths(columns, segment, false));
        }
        let own;
        (own, rest) = rest.split_at(bounds.samples[number] as usize + 1);
        let path = || columns[0].path_of(&segment.names);
        bounds.ensure_all_rows(own, segment.lengths[0], &path)?;
        let start = series.rows.start;
        let pairs = own.windows(2);
        found.extend(
            pairs.map(|pair| Series { rows: start + pair[0]..start + pair[1], lengths: None }),
        );
    }
    Ok(found)
}

/// Returns the rows of each segment.
fn segment_series(columns: &[Column], segments: &[Segment]) -> Vec<Series> {
    let mut start = 0;
    let series = segments.iter().map(|segment| {
        let lengths = segment.lengths.iter().zip(columns);
        let lengths = lengths.filter(|(_, column)| !column.span().per_sample);
        let lengths: Vec<u64> = lengths.map(|(length, _)| *length).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let is_even = lengths.iter().all(|length| *length == longest);
        let rows = start..start + longest;
        start = rows.end;
        Series { rows, lengths: (!is_even).then(|| segment.lengths.clone()) }
    });
    series.collect()
}

/// `is_trimmed` says that the user allows it, and something else does not.
fn different_lengths(columns: &[Column], segment: &Segment, is_trimmed: bool) -> Error {
    let first = segment.lengths[0];
    let other = segment.lengths.iter().position(|length| *length != first).unwrap_or(0);
    let path = |number: usize| columns[number].path_of(&segment.names);
    let error = Error::invalid_argument(format!(
        "datasets must have the same number of rows: `{}` has {first}, but `{}` has {}",
        path(0),
        path(other),
        segment.lengths[other]
    ));
    error.hint("choose datasets with the same number of rows").python_hint(match is_trimmed {
        true => {
            "use windows that do not leave their group: `trim=True` works with `within=\"group\"`"
        }
        false => "use `trim=True` in `Rows` or `Windows` to leave out the rows that not all have",
    })
}

fn index_ragged(
    columns: &mut [Column],
    segments: &[Segment],
    bounds: &mut Bounds,
    (length, truncate, pack): (Option<u64>, bool, bool),
) -> Result<SampleIndex> {
    let series = segment_series(columns, segments);
    let mut longest = 0;
    let mut all = std::mem::take(&mut bounds.bounds);
    let mut rest = all.as_mut_slice();
    for ((series, samples), segment) in series.iter().zip(&bounds.samples).zip(segments) {
        let (own, behind) = std::mem::take(&mut rest).split_at_mut(*samples as usize + 1);
        rest = behind;
        for (column, length) in columns.iter().zip(&segment.lengths) {
            let path = || column.path_of(&segment.names);
            match column.span().per_sample {
                true if length != samples => {
                    return Err(Error::invalid_argument(format!(
                        "`{}` has {length} rows, and there are {samples} samples",
                        path()
                    ))
                    .hint("columns with one row for each sample have as many rows as there are samples"));
                }
                true => {}
                false => bounds.ensure_all_rows(own, *length, &path)?,
            }
        }
        for pair in own.windows(2) {
            longest = longest.max(pair[1] - pair[0]);
        }
        own.iter_mut().for_each(|bound| *bound += series.rows.start);
    }
    let values = |column: &&mut Column| !column.span().per_sample;
    for column in columns.iter_mut().filter(values) {
        let rows = match (pack, length) {
            (true, Some(length)) => length,
            (true, None) => {
                return Err(Error::invalid_argument("packed samples have no length").hint(
                    "say how many rows a sample has: `Ragged(..., length=1024, pack=True)`",
                ));
            }
            (false, _) => choose_length(length, longest, truncate, column)?,
        };
        column.set_rows(rows);
    }
    if pack {
        if let Some(column) = columns.iter().find(|column| column.span().per_sample) {
            return Err(Error::invalid_argument(format!(
                "`{}` has one row for each sample, which packed samples do not have",
                column.name()
            ))
            .hint("leave it out, or use `pack=False`"));
        }
        return Ok(SampleIndex::packed(series, all, spans(columns)));
    }
    Ok(SampleIndex::ragged(all, &bounds.samples, spans(columns)))
}

/// Returns how many rows a sample has, where the longest one has this many.
fn choose_length(
    length: Option<u64>,
    longest: u64,
    truncate: bool,
    column: &Column,
) -> Result<u64> {
    match length {
        Some(length) if length < longest && !truncate => Err(Error::invalid_argument(format!(
            "the longest sample of `{}` has {longest} rows, but `length` is {length}",
            column.name()
        ))
        .hint(format!("use `length={longest}`, or `truncate=True` to leave the rest out"))),
        Some(length) => Ok(length),
        None => Ok(longest.max(1)),
    }
}

fn no_samples(
    options: &LoaderOptions,
    columns: &[Column],
    segments: &[Segment],
    samples: &SampleIndex,
) -> Error {
    let longest = match samples.series() {
        Some(table) => table.series().iter().map(|one| one.rows.end - one.rows.start).max(),
        None => segments.iter().flat_map(|segment| segment.lengths.iter().copied()).max(),
    };
    let longest = longest.unwrap_or(0);
    match &options.samples {
        SampleOptions::Windows { .. } | SampleOptions::Rows => {
            let needed = columns.iter().map(|column| {
                let span = column.span();
                span.shift.unsigned_abs() + span.length
            });
            let needed = needed.max().unwrap_or(1);
            Error::invalid_argument(format!(
                "no sample has all of its rows: it needs {needed}, and the longest series has {longest}"
            ))
            .hint("use shorter windows, or `pad=\"zeros\"` or `pad=\"repeat\"`")
        }
        SampleOptions::Groups { .. } | SampleOptions::Ragged { .. } => {
            Error::invalid_argument("there are no samples").hint("the offsets have no sample")
        }
    }
}

/// Returns the columns that say which rows are real, and which belong together.
fn derive_columns(
    options: &LoaderOptions,
    columns: &[Column],
    samples: &SampleIndex,
) -> Vec<DerivedColumn> {
    let values = || columns.iter().enumerate().filter(|(_, column)| !column.span().per_sample);
    let derived = |kind, (number, column): (usize, &Column)| DerivedColumn {
        kind,
        column: number,
        length: column.span().length,
    };
    let mut all = Vec::new();
    if samples.parts().is_some()
        && let Some(first) = values().next()
    {
        all.push(derived(DerivedKind::SegmentIds, first));
        all.push(derived(DerivedKind::Positions, first));
    }
    if options.mask && samples.has_padding() {
        let masks = values().map(|column| derived(DerivedKind::Mask, column));
        let mut masks: Vec<DerivedColumn> = masks.collect();
        let spans = samples.spans();
        let uneven = (samples.series())
            .is_some_and(|table| table.series().iter().any(|one| one.lengths.is_some()));
        if !uneven && values().all(|(number, _)| spans[number] == spans[masks[0].column]) {
            masks.truncate(1);
        }
        all.extend(masks);
    }
    all
}

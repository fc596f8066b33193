//! Every feature of HDF5 that is recorded in `fixtures/hdf5`: read as h5py reads it, or refused by name.

use std::path::Path;
use std::sync::Arc;

use vramfit_base::ErrorKind;
use vramfit_data::hdf5::{Container, Content, Node, Scalar, tree};
use vramfit_data::read::{Dataset, RowOptions, RowReader, Storage};
use vramfit_data::source::{Access, Source};

use crate::recorded::{Case, cases, folder};

fn open(case: &Case, access: Access, threads: usize) -> vramfit_base::Result<RowReader> {
    let source = Source::open(&case.path("h5"), access)?;
    let dataset = Dataset::open_in(&Container::open(Arc::new(source))?, &case.dataset)?;
    let options = RowOptions { field: case.field.clone(), threads, ..RowOptions::default() };
    RowReader::new(dataset, &options)
}

/// Moves the last axis of elements to the front.
fn with_last_axis_first(shape: &[u64], element: usize, values: &[u8]) -> Vec<u8> {
    let rows = shape[shape.len() - 1] as usize;
    let each = values.len().checked_div(rows * element).unwrap_or(0);
    let elements = (0..rows).flat_map(|row| (0..each).map(move |place| place * rows + row));
    elements.flat_map(|number| &values[number * element..][..element]).copied().collect()
}

fn read_all(rows: &RowReader) -> vramfit_base::Result<Vec<u8>> {
    let mut out = vec![0xaa; rows.len() as usize * rows.row_bytes()];
    rows.read(0..rows.len(), &mut out)?;
    Ok(out)
}

/// Calls `check` for every file that is read, and every way of reading it, with the bytes of all rows.
fn for_each_readable(check: impl Fn(&str, &RowReader, &[u8])) {
    for case in cases() {
        let Some((_, _, expected)) = case.values() else {
            continue;
        };
        for access in [Access::Read, Access::MapIfSafe] {
            let rows = open(&case, access, 1).expect(&case.name);
            check(&case.name, &rows, &expected);
        }
    }
}

#[test]
fn rows_on_the_last_axis_are_those_of_the_transposed_values() {
    let mut read = 0;
    for case in cases() {
        let Some((_, _, expected)) = case.values() else {
            continue;
        };
        for (access, threads) in [(Access::Read, 1), (Access::Read, 3), (Access::MapIfSafe, 1)] {
            let name = &case.name;
            let dataset = open(&case, access, 1).expect(name).dataset().clone();
            let shape = dataset.shape().to_vec();
            let field = case.field.clone();
            let options =
                RowOptions { field, threads, is_last_axis: true, ..RowOptions::default() };
            let is_virtual = matches!(dataset.storage(), Storage::Virtual(_));
            let rows = match RowReader::new(dataset, &options) {
                // The axis is not one of the source that rows can be on.
                Err(error) if is_virtual && error.kind() == ErrorKind::UnsupportedFeature => {
                    assert!(error.message().contains("rows are on the last axis, and"), "{error}");
                    continue;
                }
                rows => rows.expect(name),
            };
            assert_eq!(rows.len(), shape[shape.len() - 1], "{name}");
            let want = with_last_axis_first(&shape, rows.element_bytes(), &expected);
            assert!(read_all(&rows).expect(name) == want, "{name}: other values");
            if rows.is_empty() || rows.row_bytes() == 0 {
                continue;
            }
            // Some of them, one twice, and the first elements of each.
            let numbers = [rows.len() - 1, 0, rows.len() / 2, 0];
            let mut some = vec![0; 4 * rows.row_bytes()];
            rows.gather(&numbers, &mut some).expect(name);
            for (number, got) in numbers.iter().zip(some.chunks_exact(rows.row_bytes())) {
                let start = *number as usize * rows.row_bytes();
                assert!(got == &want[start..][..rows.row_bytes()], "{name}: row {number}");
            }
            let first = rows.element_bytes();
            let mut starts = vec![0; rows.len() as usize * first];
            rows.read_starts(0..rows.len(), &mut starts).expect(name);
            let wanted: Vec<u8> = want
                .chunks_exact(rows.row_bytes())
                .flat_map(|row| &row[..first])
                .copied()
                .collect();
            assert!(starts == wanted, "{name}: other starts");
            read += 1;
        }
    }
    assert!(read > 300, "only {read} were read");
}

fn list(path: &Path) -> vramfit_base::Result<Vec<Node>> {
    let source = Source::open(path, Access::Read)?;
    tree(&Container::open(Arc::new(source))?)
}

#[test]
fn what_is_read_is_what_h5py_reads() {
    for case in cases() {
        let Some((shape, dtype, expected)) = case.values() else {
            continue;
        };
        for (access, threads) in [(Access::Read, 1), (Access::Read, 3), (Access::MapIfSafe, 1)] {
            let name = &case.name;
            let rows = open(&case, access, threads);
            let rows = rows.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!([&[rows.len()], rows.row_shape()].concat(), shape, "{name}");
            assert_eq!(Some(rows.scalar()), Scalar::from_name(dtype), "{name}");
            let got = read_all(&rows).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(got == expected, "{name}: other values");
        }
    }
}

#[test]
fn gathered_rows_are_those_of_the_range() {
    for_each_readable(|name, rows, expected| {
        if rows.is_empty() {
            return;
        }
        // Backwards, with steps and duplicates.
        let wanted: Vec<u64> = (0..40).map(|step| (400 - step * 7) % rows.len()).collect();
        let width = rows.row_bytes();
        let mut out = vec![0; wanted.len() * width];
        rows.gather(&wanted, &mut out).unwrap();
        for (place, row) in wanted.iter().enumerate() {
            let want = &expected[*row as usize * width..][..width];
            assert_eq!(&out[place * width..][..width], want, "{name}");
        }
    });
}

#[test]
fn starts_of_rows_are_those_of_whole_rows() {
    for_each_readable(|name, rows, expected| {
        let (width, all) = (rows.row_bytes(), rows.row_bytes() / rows.element_bytes());
        let wanted = [1, all / 2, all].into_iter();
        for elements in wanted.filter(|some| (1..=all).contains(some)) {
            let start = elements * rows.element_bytes();
            let mut out = vec![0xaa; rows.len() as usize * start];
            rows.read_starts(0..rows.len(), &mut out).unwrap();
            let rows = out.chunks_exact(start).zip(expected.chunks_exact(width));
            for (got, row) in rows {
                assert_eq!(got, &row[..start], "{name}: {elements} elements");
            }
        }
    });
}

#[test]
fn what_is_refused_is_named() {
    let mut count = 0;
    for case in cases() {
        let Some((refused, kind)) = case.refusal() else {
            continue;
        };
        let result = open(&case, Access::Read, 1).and_then(|rows| read_all(&rows));
        let error = result.expect_err(&case.name);
        assert!(error.message().contains(refused), "{}: {error}", case.name);
        assert_eq!(error.kind().id(), kind, "{}: {error}", case.name);
        count += 1;
    }
    assert!(count > 15, "only {count} cases are refused");
}

#[test]
fn the_tree_lists_every_dataset_that_is_read() {
    for case in cases() {
        let nodes = list(&case.path("h5")).unwrap();
        assert_eq!(nodes[0].path, "/", "{}", case.name);
        let Some((shape, ..)) = case.values() else {
            continue;
        };
        let path = format!("/{}", case.dataset.trim_start_matches('/'));
        let found = nodes.iter().find(|node| node.path == path);
        match found.map(|node| &node.content) {
            // Axes of elements that are arrays come behind those of the dataset.
            Some(Content::Dataset(summary)) => {
                assert!(shape.starts_with(&summary.shape), "{}", case.name);
            }
            // Names behind a link are listed where it leads to.
            Some(Content::SoftLink(_)) | None if case.name.contains("link") => {}
            other => panic!("{}: {other:?}", case.name),
        }
    }
}

#[test]
fn attributes_are_listed_also_where_there_are_many() {
    let nodes = list(&folder().join("many_attributes.h5")).unwrap();
    let x = nodes.iter().find(|node| node.path == "/x").unwrap();
    let expected: Vec<_> = (0..40).map(|number| format!("attribute_{number:02}")).collect();
    assert_eq!(x.attributes, expected);
}

//! Every feature of HDF5 that is recorded in `fixtures/hdf5`: read as h5py reads it, or refused by name.

mod recorded;

use std::sync::Arc;

use recorded::{Case, cases, folder};
use vramfit_data::hdf5::{Container, Content, Scalar, tree};
use vramfit_data::read::{Dataset, RowOptions, RowReader};
use vramfit_data::source::{Access, Source};

fn open(case: &Case, access: Access, threads: usize) -> vramfit_core::Result<RowReader> {
    let source = Source::open(&folder().join(format!("{}.h5", case.name)), access)?;
    let dataset = Dataset::open_in(&Container::open(Arc::new(source))?, &case.dataset)?;
    let options = RowOptions {
        field: case.field.clone(),
        threads,
        ..RowOptions::default()
    };
    RowReader::new(dataset, &options)
}

fn read_all(rows: &RowReader) -> vramfit_core::Result<Vec<u8>> {
    let mut out = vec![0xaa; rows.len() as usize * rows.row_bytes()];
    rows.read(0..rows.len(), &mut out)?;
    Ok(out)
}

#[test]
fn what_is_read_is_what_h5py_reads() {
    for case in cases() {
        let Some((shape, dtype, expected)) = case.values() else {
            continue;
        };
        for (access, threads) in [(Access::Read, 1), (Access::Read, 3), (Access::MapIfSafe, 1)] {
            let rows = open(&case, access, threads)
                .unwrap_or_else(|error| panic!("{}: {error}", case.name));
            assert_eq!(
                [&[rows.len()], rows.row_shape()].concat(),
                shape,
                "{}",
                case.name
            );
            assert_eq!(
                Some(rows.scalar()),
                Scalar::from_name(dtype),
                "{}",
                case.name
            );
            let got = read_all(&rows).unwrap_or_else(|error| panic!("{}: {error}", case.name));
            assert!(got == expected, "{}: other values", case.name);
        }
    }
}

#[test]
fn gathered_rows_are_those_of_the_range() {
    for case in cases() {
        let Some((_, _, expected)) = case.values() else {
            continue;
        };
        for access in [Access::Read, Access::MapIfSafe] {
            let rows = open(&case, access, 1).unwrap();
            if rows.is_empty() {
                continue;
            }
            // Backwards, with steps and duplicates.
            let wanted: Vec<u64> = (0..40).map(|step| (400 - step * 7) % rows.len()).collect();
            let mut out = vec![0; wanted.len() * rows.row_bytes()];
            rows.gather(&wanted, &mut out).unwrap();
            for (place, row) in wanted.iter().enumerate() {
                let width = rows.row_bytes();
                let want = &expected[*row as usize * width..(*row as usize + 1) * width];
                assert_eq!(
                    &out[place * width..(place + 1) * width],
                    want,
                    "{}",
                    case.name
                );
            }
        }
    }
}

#[test]
fn starts_of_rows_are_those_of_whole_rows() {
    for case in cases() {
        let Some((_, _, expected)) = case.values() else {
            continue;
        };
        for access in [Access::Read, Access::MapIfSafe] {
            let rows = open(&case, access, 1).unwrap();
            let (width, all) = (rows.row_bytes(), rows.row_bytes() / rows.element_bytes());
            for elements in [1, all / 2, all]
                .into_iter()
                .filter(|some| (1..=all).contains(some))
            {
                let start = elements * rows.element_bytes();
                let mut out = vec![0xaa; rows.len() as usize * start];
                rows.read_starts(0..rows.len(), &mut out).unwrap();
                let rows = out.chunks_exact(start).zip(expected.chunks_exact(width));
                for (got, row) in rows {
                    assert_eq!(got, &row[..start], "{}: {elements} elements", case.name);
                }
            }
        }
    }
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
        let source = Source::open(&folder().join(format!("{}.h5", case.name)), Access::Read);
        let nodes = tree(&Container::open(Arc::new(source.unwrap())).unwrap()).unwrap();
        assert_eq!(nodes[0].path, "/", "{}", case.name);
        let Some((shape, ..)) = case.values() else {
            continue;
        };
        let path = format!("/{}", case.dataset.trim_start_matches('/'));
        match nodes
            .iter()
            .find(|node| node.path == path)
            .map(|node| &node.content)
        {
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
    let source = Source::open(&folder().join("many_attributes.h5"), Access::Read).unwrap();
    let nodes = tree(&Container::open(Arc::new(source)).unwrap()).unwrap();
    let x = nodes.iter().find(|node| node.path == "/x").unwrap();
    let expected: Vec<_> = (0..40)
        .map(|number| format!("attribute_{number:02}"))
        .collect();
    assert_eq!(x.attributes, expected);
}

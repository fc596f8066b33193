//! A memory map: a strip of characters for each region, as XLA's own out-of-memory text draws it, and one for a
//! request that failed. All have one scale.

use vramfit_base::text::wrap;

use crate::bytes::Bytes;
use crate::report::{AddressMap, Region};

pub(super) fn render(map: &AddressMap, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let regions = map.regions.iter().map(|region| region.bytes);
    let longest = regions.chain(map.failed_request_bytes).max();
    let longest = longest.unwrap_or(0).max(1);
    // What has any bytes has a cell.
    let cells = |bytes: u64| {
        let cells = u128::from(bytes) * (columns as u128 - 2) / u128::from(longest);
        (cells as usize).max(1)
    };
    if !map.caption.is_empty() {
        lines.extend(wrap(&map.caption, columns, 0));
    }
    for region in &map.regions {
        let segments = region.segments.iter();
        let free = segments.filter(|segment| segment.kind == "free").count();
        let count = match region.segments.len() {
            1 => "1 segment".to_owned(),
            count => format!("{count} segments"),
        };
        let heading = format!(
            "{} at {:#x}: {count}, {free} free (* used, _ free, + both)",
            Bytes(region.bytes),
            region.address
        );
        lines.extend(wrap(&heading, columns, 2));
        lines.push(format!("[{}]", strip(region, cells(region.bytes))));
    }
    if let Some(bytes) = map.failed_request_bytes.filter(|_| !map.regions.is_empty()) {
        lines.push(format!("{} requested, to the same scale", Bytes(bytes)));
        lines.push(format!("[{}]", "/".repeat(cells(bytes))));
    }
    lines
}

/// Draws a region, each character an equal part of it.
fn strip(region: &Region, cells: usize) -> String {
    let mut used = vec![false; cells];
    let mut free = vec![false; cells];
    let cell_of = |offset: u64| {
        (u128::from(offset) * cells as u128 / u128::from(region.bytes.max(1))) as usize
    };
    let mut start = 0_u64;
    for segment in region.segments.iter().filter(|segment| segment.bytes > 0) {
        let end = start.saturating_add(segment.bytes);
        let cells = if segment.kind == "free" { &mut free } else { &mut used };
        let (first, last) = (cell_of(start), cell_of(end - 1));
        for cell in cells.iter_mut().take(last + 1).skip(first) {
            *cell = true;
        }
        start = end;
    }
    let characters = used.iter().zip(&free).map(|cell| match cell {
        (true, true) => '+',
        (true, false) => '*',
        (false, _) => '_',
    });
    characters.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Segment;

    #[test]
    fn regions_and_request_have_one_scale() {
        let region = |bytes| Region {
            address: 0,
            bytes,
            segments: vec![Segment { bytes, kind: "parameters", label: String::new() }],
        };
        let lengths = |sizes: &[u64], request: Option<u64>| -> Vec<usize> {
            let map = AddressMap {
                caption: String::new(),
                regions: sizes.iter().copied().map(region).collect(),
                failed_request_bytes: request,
            };
            let lines = render(&map, 102);
            let strips = lines.iter().filter(|line| line.starts_with('['));
            strips.map(|strip| strip.len() - 2).collect()
        };
        assert_eq!(lengths(&[200], None), [100]);
        assert_eq!(lengths(&[2, 1000], Some(500)), [1, 100, 50]);
        assert_eq!(lengths(&[100, 400], Some(800)), [12, 50, 100]);
        assert_eq!(lengths(&[1000], Some(1)), [100, 1]);
    }

    #[test]
    fn a_strip_shows_used_free_and_both() {
        let segment = |bytes, kind| Segment { bytes, kind, label: String::new() };
        let region = Region {
            address: 0,
            bytes: 80,
            segments: vec![
                segment(25, "parameters"),
                segment(15, "free"),
                segment(10, "inputs"),
                segment(30, "free"),
            ],
        };
        assert_eq!(strip(&region, 8), "**+_*___");
    }
}

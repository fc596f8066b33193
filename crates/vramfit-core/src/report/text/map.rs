//! What lies where, a strip of characters for each region, as XLA's own out-of-memory text draws it.

use super::wrap::wrap;
use crate::bytes::Bytes;
use crate::report::{AddressMap, Span};

/// Renders a map: a heading and a strip for each region.
pub(super) fn render(map: &AddressMap, columns: usize) -> Vec<String> {
    let mut lines = match map.moment.is_empty() {
        true => Vec::new(),
        false => wrap(&map.moment, columns, 0),
    };
    for span in &map.spans {
        let free = span
            .pieces
            .iter()
            .filter(|piece| piece.kind == "free")
            .count();
        let heading = format!(
            "{} at {:#x}: {} parts, {free} of them free (* used, _ free, + both)",
            Bytes(span.bytes),
            span.address,
            span.pieces.len()
        );
        lines.extend(wrap(&heading, columns, 2));
        lines.push(format!("[{}]", strip(span, columns - 2)));
    }
    lines
}

/// Draws a region, each character an equal share of it.
fn strip(span: &Span, cells: usize) -> String {
    let mut used = vec![false; cells];
    let mut free = vec![false; cells];
    let place = |bytes: u64| u128::from(bytes) * cells as u128 / u128::from(span.bytes.max(1));
    let mut from = 0_u64;
    for piece in span.pieces.iter().filter(|piece| piece.bytes > 0) {
        let to = from.saturating_add(piece.bytes);
        let (first, last) = (place(from) as usize, place(to - 1) as usize);
        let cells = if piece.kind == "free" {
            &mut free
        } else {
            &mut used
        };
        for cell in cells.iter_mut().take(last + 1).skip(first) {
            *cell = true;
        }
        from = to;
    }
    let drawn = used.iter().zip(&free).map(|cell| match cell {
        (true, true) => '+',
        (true, false) => '*',
        (false, _) => '_',
    });
    drawn.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Piece;

    #[test]
    fn a_strip_tells_used_free_and_both() {
        let piece = |bytes, kind| Piece {
            bytes,
            kind,
            label: String::new(),
        };
        let span = Span {
            address: 0,
            bytes: 80,
            pieces: vec![
                piece(25, "parameters"),
                piece(15, "free"),
                piece(10, "inputs"),
                piece(30, "free"),
            ],
        };
        assert_eq!(strip(&span, 8), "**+_*___");
    }
}

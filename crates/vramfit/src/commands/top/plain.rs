//! The board without a screen: a table, CSV.

use ratatui::text::Line;

use super::board::{Board, Figure};
use super::state::State;
use super::{table, view};

/// Writes the table that `--once` prints.
pub(super) fn table(state: &State, width: usize) -> String {
    let sheet = view::sheet(state, width, false);
    let lines = sheet.head.into_iter().chain(sheet.body).chain(sheet.notes);
    lines.map(|line| plain(&line)).collect()
}

fn plain(line: &Line<'_>) -> String {
    let text: String = line
        .spans
        .iter()
        .map(|span| span.content.as_ref())
        .collect();
    format!("{}\n", text.trim_end())
}

/// The first line of the CSV.
pub(super) const CSV_HEADER: &str = "at_unix_ms,card,uuid,virtual,card_total_bytes,card_used_bytes,\
pid,user,container,state,driver_bytes,reserved_bytes,in_use_bytes,peak_bytes,largest_free_bytes,\
limit_bytes,command\n";

/// Writes a line for each process on each card, and one for a card without processes. What is not
/// known is empty.
pub(super) fn csv(board: &Board) -> String {
    let bytes = |figure: &Figure| {
        figure
            .bytes()
            .map_or_else(String::new, |bytes| bytes.to_string())
    };
    let mut text = String::new();
    for card in &board.cards {
        let of_card = [
            board.at_unix_ms.to_string(),
            field(&card.label),
            card.uuid.clone().unwrap_or_default(),
            u8::from(card.is_virtual).to_string(),
            bytes(&card.total),
            bytes(&card.used),
        ];
        if card.processes.is_empty() {
            text.push_str(&format!("{}{}\n", of_card.join(","), ",".repeat(11)));
        }
        for row in &card.processes {
            let of_process = [
                row.pid.to_string(),
                field(row.user.as_deref().unwrap_or("")),
                field(row.container.as_deref().unwrap_or("")),
                table::liveness(row.liveness),
                bytes(&row.driver),
                bytes(&row.reserved),
                bytes(&row.in_use),
                bytes(&row.peak),
                bytes(&row.largest_free),
                bytes(&row.limit),
                field(row.command.as_deref().unwrap_or("")),
            ];
            text.push_str(&format!("{},{}\n", of_card.join(","), of_process.join(",")));
        }
    }
    text
}

/// Quotes a text where CSV needs it.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::board::{CardRow, ProcessRow};
    use super::*;

    #[test]
    fn every_line_has_as_many_fields_as_the_header() {
        let card = |processes| CardRow {
            label: "GPU 0".to_owned(),
            processes,
            ..CardRow::default()
        };
        let board = Board {
            cards: vec![card(Vec::new()), card(vec![ProcessRow::default()])],
            ..Board::default()
        };
        let fields = CSV_HEADER.matches(',').count();
        for line in csv(&board).lines() {
            assert_eq!(line.matches(',').count(), fields, "{line}");
        }
        assert_eq!(field("a, \"b\""), "\"a, \"\"b\"\"\"");
    }
}

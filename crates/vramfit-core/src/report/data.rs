//! A report as the page's script reads it: one JSON object, texts in a table, numbers in columns.

use serde_json::{Value as Json, json};

use super::columns::{Strings, pack};
use super::palette::colours;
use super::{
    AddressMap, Bands, Bar, Body, Curves, Figure, Portion, Report, Table, Timeline, Tree, Value,
};

/// Returns the data of a report, not yet escaped.
pub(super) fn data(report: &Report) -> Json {
    let mut data = Data::default();
    let sections: Vec<Json> = report
        .sections
        .iter()
        .map(|section| {
            let mut body = data.body(&section.body);
            body["title"] = data.strings.place(&section.title).into();
            body
        })
        .collect();
    let facts = data.figures(&report.facts);
    let found = colours(&data.kinds);
    let kinds = data.kinds.iter().zip(found);
    let kinds: Vec<Json> = kinds
        .map(|(name, colour)| json!({"name": name, "light": colour.light, "dark": colour.dark}))
        .collect();
    json!({
        "sections": sections,
        "facts": facts,
        "kinds": kinds,
        "strings": data.strings.into_json(),
    })
}

#[derive(Default)]
struct Data {
    strings: Strings,
    kinds: Vec<&'static str>,
}

impl Data {
    fn body(&mut self, body: &Body) -> Json {
        match body {
            Body::Text(points) => json!({"form": "text", "points": self.texts(points)}),
            Body::Figures(figures) => json!({"form": "figures", "figures": self.figures(figures)}),
            Body::Table(table) => self.table(table),
            Body::Bars(bars) => json!({"form": "bars", "bars": self.bars(bars)}),
            Body::Tree(tree) => self.tree(tree),
            Body::Timeline(timeline) => self.timeline(timeline),
            Body::Bands(bands) => self.bands(bands),
            Body::Map(map) => self.map(map),
            Body::Curves(curves) => self.curves(curves),
            Body::Split(portions) => self.split(portions),
        }
    }

    fn texts(&mut self, texts: &[String]) -> Vec<usize> {
        texts.iter().map(|text| self.strings.place(text)).collect()
    }

    /// Packs the places of many texts.
    fn text_column<'a>(&mut self, texts: impl Iterator<Item = &'a str>) -> Json {
        pack(texts.map(|text| self.strings.place(text) as u64))
    }

    fn kind_column(&mut self, kinds: impl Iterator<Item = &'static str>) -> Json {
        pack(kinds.map(|kind| {
            let known = self.kinds.iter().position(|known| *known == kind);
            known.unwrap_or_else(|| {
                self.kinds.push(kind);
                self.kinds.len() - 1
            }) as u64
        }))
    }

    fn figures(&mut self, figures: &[Figure]) -> Vec<Json> {
        let figure = |figure: &Figure| {
            json!({
                "label": self.strings.place(&figure.label),
                "value": self.strings.place(&figure.value.to_string()),
                "bytes": match figure.value {
                    Value::Bytes(bytes) => Some(bytes),
                    _ => None,
                },
                "note": self.strings.place(&figure.note),
            })
        };
        figures.iter().map(figure).collect()
    }

    fn bars(&mut self, bars: &[Bar]) -> Vec<Json> {
        let bar = |bar: &Bar| {
            json!({
                "label": self.strings.place(&bar.label),
                "part": bar.part_bytes,
                "whole": bar.whole_bytes,
            })
        };
        bars.iter().map(bar).collect()
    }

    fn table(&mut self, table: &Table) -> Json {
        let columns = table.columns.iter().enumerate();
        let columns: Vec<Json> = columns
            .map(|(at, name)| {
                let cells = table.rows.iter().filter_map(|row| row.get(at));
                let mut column = self.cells(&cells.collect::<Vec<_>>());
                column["name"] = self.strings.place(name).into();
                column
            })
            .collect();
        let note = self.strings.place(&table.note);
        json!({"form": "table", "rows": table.rows.len(), "columns": columns, "note": note})
    }

    /// A column has the form of its first value. What has no such value, or one of another form,
    /// is words: the place of the text, counted down from -1. Changes have a sign of their own, so a
    /// column of them holds nothing else; beside others they are words.
    fn cells(&mut self, cells: &[&Value]) -> Json {
        let form = |value: &Value| match value {
            Value::Text(_) => Some("text"),
            Value::Bytes(_) => Some("bytes"),
            Value::Count(_) => Some("count"),
            Value::Share(_) => Some("share"),
            Value::Change(_) | Value::Missing(_) => None,
        };
        let change = |value: &&Value| match value {
            Value::Change(bytes) => Some(*bytes),
            _ => None,
        };
        let changes: Option<Vec<i64>> = cells.iter().map(change).collect();
        if let Some(changes) = changes.filter(|changes| !changes.is_empty()) {
            return json!({"cells": "change", "values": pack(changes)});
        }
        let common = cells.iter().find_map(|value| form(value)).unwrap_or("text");
        let mut words = |value: &Value| -1 - self.strings.place(&value.to_string()) as i128;
        if common == "share" {
            let cell = |value: &&Value| match value {
                Value::Share(share) => json!(share),
                other => json!(words(other) as i64),
            };
            let values: Vec<Json> = cells.iter().map(cell).collect();
            return json!({"cells": common, "values": values});
        }
        let packed = pack(cells.iter().map(|value| match value {
            Value::Bytes(number) | Value::Count(number) if form(value) == Some(common) => {
                i128::from(*number)
            }
            other => words(other),
        }));
        json!({"cells": common, "values": packed})
    }

    fn tree(&mut self, tree: &Tree) -> Json {
        let nodes = &tree.nodes;
        json!({
            "form": "tree",
            "parent": pack(nodes.iter().map(|node| node.parent.map_or(-1, i64::from))),
            "label": self.text_column(nodes.iter().map(|node| &node.label[..])),
            "kind": self.kind_column(nodes.iter().map(|node| node.kind)),
            "bytes": pack(nodes.iter().map(|node| node.bytes)),
            "note": self.text_column(nodes.iter().map(|node| &node.note[..])),
        })
    }

    fn timeline(&mut self, timeline: &Timeline) -> Json {
        let lines = timeline.lines.iter().map(|line| {
            json!({
                "label": self.strings.place(&line.label),
                "bytes": pack(line.bytes.iter().copied()),
            })
        });
        let lines: Vec<Json> = lines.collect();
        json!({
            "form": "timeline",
            "unit": timeline.unit,
            "at": pack(timeline.at.iter().copied()),
            "lines": lines,
            "mark_at": pack(timeline.marks.iter().map(|mark| mark.at)),
            "mark_label": self.text_column(timeline.marks.iter().map(|mark| &mark.label[..])),
            "limit": timeline.limit_bytes,
        })
    }

    fn bands(&mut self, bands: &Bands) -> Json {
        // In the order in which they begin, most columns rise by little from row to row.
        let mut all: Vec<_> = bands.bands.iter().collect();
        all.sort_by_key(|band| (band.start, band.offset));
        json!({
            "form": "bands",
            "label": self.strings.place(&bands.label),
            "height": bands.height_bytes,
            "moments": self.text_column(bands.moments.iter().map(String::as_str)),
            "peak_at": bands.peak_at,
            "live": pack(bands.live_bytes.iter().copied()),
            "name": self.text_column(all.iter().map(|band| &band.label[..])),
            "kind": self.kind_column(all.iter().map(|band| band.kind)),
            "offset": pack(all.iter().map(|band| band.offset)),
            "bytes": pack(all.iter().map(|band| band.bytes)),
            "start": pack(all.iter().map(|band| band.start)),
            "length": pack(all.iter().map(|band| i64::from(band.end) - i64::from(band.start))),
            "note": self.text_column(all.iter().map(|band| &band.note[..])),
        })
    }

    fn map(&mut self, map: &AddressMap) -> Json {
        let spans = map.spans.iter().map(|span| {
            let pieces = &span.pieces;
            json!({
                "address": format!("{:#x}", span.address),
                "size": span.bytes,
                "bytes": pack(pieces.iter().map(|piece| piece.bytes)),
                "kind": self.kind_column(pieces.iter().map(|piece| piece.kind)),
                "label": self.text_column(pieces.iter().map(|piece| &piece.label[..])),
            })
        });
        let spans: Vec<Json> = spans.collect();
        json!({"form": "map", "moment": self.strings.place(&map.moment), "spans": spans})
    }

    fn curves(&mut self, curves: &Curves) -> Json {
        let lines = curves.lines.iter().map(|line| {
            json!({
                "label": self.strings.place(&line.label),
                "at": pack(line.points.iter().map(|(at, _)| *at)),
                "values": line.points.iter().map(|(_, value)| *value).collect::<Vec<f64>>(),
            })
        });
        let lines: Vec<Json> = lines.collect();
        json!({"form": "curves", "unit": curves.unit, "lines": lines})
    }

    fn split(&mut self, portions: &[Portion]) -> Json {
        let portions = portions.iter().map(|portion| {
            json!({
                "label": self.strings.place(&portion.label),
                "share": portion.share,
                "amount": self.strings.place(&portion.amount),
            })
        });
        json!({"form": "split", "portions": portions.collect::<Vec<Json>>()})
    }
}

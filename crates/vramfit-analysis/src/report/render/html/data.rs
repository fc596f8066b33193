//! A report as the page's script reads it: one JSON object, texts in a table, numbers in columns.

use serde_json::{Value as Json, json};

use super::packing::{StringPool, pack};
use super::palette::color;
use crate::report::{
    Action, AddressMap, Bar, BufferLifetimes, Content, Curves, Metric, OwnerBytes, Report, Share,
    Stack, Table, Timeline, Tradeoff, Tree, Value,
};

/// Returns the data of a report, not yet escaped.
pub(super) fn encode(report: &Report) -> Json {
    let mut encoder = Encoder::default();
    let sections: Vec<Json> = report
        .sections
        .iter()
        .map(|section| {
            let mut content = encoder.content(&section.content);
            content["title"] = encoder.strings.intern(&section.title).into();
            content
        })
        .collect();
    let metadata = encoder.metrics(&report.metadata);
    let next_command = report.next_command.as_ref().map(|action| encoder.action(action));
    let kinds = encoder.kinds.iter().map(|kind| {
        let color = color(kind);
        json!({"name": kind.replace('_', " "), "light": color.light, "dark": color.dark})
    });
    let kinds: Vec<Json> = kinds.collect();
    json!({
        "sections": sections,
        "metadata": metadata,
        "next_command": next_command,
        "kinds": kinds,
        "strings": encoder.strings.into_json(),
    })
}

#[derive(Default)]
struct Encoder {
    strings: StringPool,
    kinds: Vec<&'static str>,
}

impl Encoder {
    fn content(&mut self, content: &Content) -> Json {
        match content {
            Content::List(points) => {
                let points: Vec<_> = points.iter().map(|it| self.strings.intern(it)).collect();
                json!({"type": "list", "points": points})
            }
            Content::Actions(actions) => {
                let actions: Vec<Json> = actions.iter().map(|it| self.action(it)).collect();
                json!({"type": "actions", "actions": actions})
            }
            Content::Metrics(metrics) => {
                json!({"type": "metrics", "metrics": self.metrics(metrics)})
            }
            Content::Table(table) => self.table(table),
            Content::Bars(bars) => json!({"type": "bars", "bars": self.bars(bars)}),
            Content::Tree(tree) => self.tree(tree),
            Content::Timeline(timeline) => self.timeline(timeline),
            Content::BufferLifetimes(lifetimes) => self.lifetimes(lifetimes),
            Content::AddressMap(map) => self.map(map),
            Content::Curves(curves) => self.curves(curves),
            Content::Breakdown(shares) => self.breakdown(shares),
            Content::Tradeoff(tradeoff) => self.tradeoff(tradeoff),
            Content::Stacks(stacks) => self.stacks(stacks),
        }
    }

    fn action(&mut self, action: &Action) -> Json {
        json!([self.strings.intern(&action.text), self.strings.intern(&action.command)])
    }

    fn text_column<'a>(&mut self, texts: impl Iterator<Item = &'a str>) -> Json {
        pack(texts.map(|text| self.strings.intern(text) as u64))
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

    fn metrics(&mut self, metrics: &[Metric]) -> Vec<Json> {
        let encode = |metric: &Metric| {
            json!({
                "label": self.strings.intern(&metric.label),
                "value": self.strings.intern(&metric.value.to_string()),
                "bytes": match metric.value {
                    Value::Bytes(bytes) => Some(bytes),
                    _ => None,
                },
                "note": self.strings.intern(&metric.note),
            })
        };
        metrics.iter().map(encode).collect()
    }

    fn bars(&mut self, bars: &[Bar]) -> Vec<Json> {
        let encode = |bar: &Bar| {
            json!({
                "label": self.strings.intern(&bar.label),
                "part": bar.part_bytes,
                "whole": bar.whole_bytes,
                "owners": self.owners(&bar.owners),
                "uncertain": bar.uncertain_bytes,
            })
        };
        bars.iter().map(encode).collect()
    }

    fn owners(&mut self, owners: &[OwnerBytes]) -> Json {
        json!({
            "kind": self.kind_column(owners.iter().map(|(kind, _, _)| *kind)),
            "name": self.text_column(owners.iter().map(|(_, name, _)| *name)),
            "bytes": pack(owners.iter().map(|(_, _, bytes)| *bytes)),
        })
    }

    fn table(&mut self, table: &Table) -> Json {
        let columns = table.columns.iter().enumerate();
        let columns: Vec<Json> = columns
            .map(|(at, name)| {
                let cells = table.rows.iter().filter_map(|row| row.get(at));
                let mut column = self.column(&cells.collect::<Vec<_>>());
                column["name"] = self.strings.intern(name).into();
                column
            })
            .collect();
        let note = self.strings.intern(&table.note);
        json!({"type": "table", "rows": table.rows.len(), "columns": columns, "note": note})
    }

    /// A column has the format of its first value. What has no such value, or one of another format, is
    /// text: its index in the string table, counted down from -1. Changes have a sign of their own, so a
    /// column of them holds nothing else; among others they are text.
    fn column(&mut self, cells: &[&Value]) -> Json {
        let format = |value: &Value| match value {
            Value::Text(_) => Some("text"),
            Value::Bytes(_) => Some("bytes"),
            Value::Count(_) => Some("count"),
            Value::Fraction(_) => Some("fraction"),
            Value::Change(_) | Value::Missing(_) => None,
        };
        let change = |value: &&Value| match value {
            Value::Change(bytes) => Some(*bytes),
            _ => None,
        };
        let changes: Option<Vec<i64>> = cells.iter().map(change).collect();
        if let Some(changes) = changes.filter(|changes| !changes.is_empty()) {
            return json!({"format": "change", "values": pack(changes)});
        }
        let common = cells.iter().find_map(|value| format(value));
        let common = common.unwrap_or("text");
        let mut text = |value: &Value| -1 - self.strings.intern(&value.to_string()) as i128;
        if common == "fraction" {
            let cell = |value: &&Value| match value {
                Value::Fraction(fraction) => json!(fraction),
                other => json!(text(other) as i64),
            };
            let values: Vec<Json> = cells.iter().map(cell).collect();
            return json!({"format": common, "values": values});
        }
        let packed = pack(cells.iter().map(|value| match value {
            Value::Bytes(number) | Value::Count(number) if format(value) == Some(common) => {
                i128::from(*number)
            }
            other => text(other),
        }));
        json!({"format": common, "values": packed})
    }

    fn tree(&mut self, tree: &Tree) -> Json {
        let nodes = &tree.nodes;
        json!({
            "type": "tree",
            "parent": pack(nodes.iter().map(|node| node.parent.map_or(-1, i64::from))),
            "label": self.text_column(nodes.iter().map(|node| &node.label[..])),
            "kind": self.kind_column(nodes.iter().map(|node| node.kind)),
            "bytes": pack(nodes.iter().map(|node| node.bytes)),
            "note": self.text_column(nodes.iter().map(|node| &node.note[..])),
        })
    }

    fn timeline(&mut self, timeline: &Timeline) -> Json {
        let series = timeline.series.iter().map(|series| {
            json!({
                "label": self.strings.intern(&series.label),
                "bytes": pack(series.bytes.iter().copied()),
            })
        });
        let series: Vec<Json> = series.collect();
        let markers = &timeline.markers;
        json!({
            "type": "timeline",
            "unit": timeline.unit,
            "positions": pack(timeline.positions.iter().copied()),
            "series": series,
            "steps": pack(timeline.steps.iter().map(|(step, _)| *step)),
            "step_positions": pack(timeline.steps.iter().map(|(_, position)| *position)),
            "marker_positions": pack(markers.iter().map(|marker| marker.position)),
            "marker_labels": self.text_column(markers.iter().map(|marker| &marker.label[..])),
            "limit": timeline.limit_bytes,
            "request": timeline.failed_request.map(|it| {
                json!({"position": it.position, "in_use": it.in_use_bytes, "bytes": it.requested_bytes})
            }),
        })
    }

    fn lifetimes(&mut self, lifetimes: &BufferLifetimes) -> Json {
        // In the order in which they begin, most columns rise by little from row to row.
        let mut buffers: Vec<_> = lifetimes.buffers.iter().collect();
        buffers.sort_by_key(|buffer| (buffer.start, buffer.offset));
        let instructions = lifetimes.instructions.iter();
        let length = |start: u32, end: u32| i64::from(end) - i64::from(start);
        json!({
            "type": "lifetimes",
            "program": self.strings.intern(&lifetimes.program),
            "height": lifetimes.height_bytes,
            "instructions": self.text_column(instructions.map(String::as_str)),
            "peak_index": lifetimes.peak_index,
            "next_peak_index": lifetimes.next_peak_index,
            "live": pack(lifetimes.live_bytes.iter().copied()),
            "label": self.text_column(buffers.iter().map(|buffer| &buffer.label[..])),
            "kind": self.kind_column(buffers.iter().map(|buffer| buffer.kind)),
            "offset": pack(buffers.iter().map(|buffer| buffer.offset)),
            "bytes": pack(buffers.iter().map(|buffer| buffer.bytes)),
            "start": pack(buffers.iter().map(|buffer| buffer.start)),
            "length": pack(buffers.iter().map(|buffer| length(buffer.start, buffer.end))),
            "note": self.text_column(buffers.iter().map(|buffer| &buffer.note[..])),
            "stack": self.text_column(buffers.iter().map(|buffer| &buffer.stack[..])),
        })
    }

    fn map(&mut self, map: &AddressMap) -> Json {
        let regions = map.regions.iter().map(|region| {
            let segments = &region.segments;
            json!({
                "address": format!("{:#x}", region.address),
                "size": region.bytes,
                "bytes": pack(segments.iter().map(|segment| segment.bytes)),
                "kind": self.kind_column(segments.iter().map(|segment| segment.kind)),
                "label": self.text_column(segments.iter().map(|segment| &segment.label[..])),
            })
        });
        let regions: Vec<Json> = regions.collect();
        json!({
            "type": "map",
            "caption": self.strings.intern(&map.caption),
            "regions": regions,
            "request": map.failed_request_bytes,
        })
    }

    fn curves(&mut self, curves: &Curves) -> Json {
        let encoded = curves.curves.iter().map(|curve| {
            json!({
                "label": self.strings.intern(&curve.label),
                "positions": pack(curve.points.iter().map(|(position, _)| *position)),
                "values": curve.points.iter().map(|(_, value)| *value).collect::<Vec<f64>>(),
            })
        });
        let encoded: Vec<Json> = encoded.collect();
        json!({"type": "curves", "unit": curves.unit, "curves": encoded})
    }

    fn tradeoff(&mut self, tradeoff: &Tradeoff) -> Json {
        let alternatives = tradeoff.alternatives.iter().map(|it| {
            json!({
                "label": self.strings.intern(&it.label),
                "bytes": it.bytes,
                "cost": it.cost,
                "kind": it.kind.label(),
            })
        });
        let alternatives: Vec<Json> = alternatives.collect();
        json!({
            "type": "tradeoff",
            "cost": tradeoff.cost,
            "alternatives": alternatives,
            "limit": tradeoff.limit_bytes,
        })
    }

    fn stacks(&mut self, stacks: &[Stack]) -> Json {
        let encoded = stacks.iter().map(|stack| {
            let mut encoded = self.owners(&stack.parts);
            encoded["label"] = self.strings.intern(&stack.label).into();
            encoded
        });
        let encoded: Vec<Json> = encoded.collect();
        json!({"type": "stacks", "stacks": encoded})
    }

    fn breakdown(&mut self, shares: &[Share]) -> Json {
        let shares = shares.iter().map(|share| {
            json!({
                "label": self.strings.intern(&share.label),
                "fraction": share.fraction,
                "amount": self.strings.intern(&share.amount),
            })
        });
        json!({"type": "breakdown", "shares": shares.collect::<Vec<Json>>()})
    }
}

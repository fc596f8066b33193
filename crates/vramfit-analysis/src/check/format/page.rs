//! A page for people: what the check found, with each peak beside its pool.

use crate::check::{CheckReport, LockLine};
use crate::report::{Action, Bar, Content, Metric, Report, Section, Table, Value};

impl CheckReport {
    /// Returns the page: a table of the entries, each peak beside its pool, and what a person should look at.
    pub fn to_page(&self) -> Report {
        let mut sections = vec![
            Section::new("entries", Content::Table(self.table())),
            Section::new("peak in the pool", Content::Bars(self.bars())),
        ];
        for problem in self.problems() {
            let mut points = vec![problem.summary];
            points.extend(problem.details.iter().map(|line| line.trim_start().to_owned()));
            sections
                .push(Section::new(format!("entry {}", problem.row.name()), Content::List(points)));
        }
        sections.extend(Section::list("what the answer depends on", self.qualified_summaries()));
        sections.extend(Section::list("notes", self.notes.clone()));
        Report {
            title: "vramfit check".to_owned(),
            outcome: self.passes().into(),
            headline: self.headline(),
            next_command: self
                .update_command()
                .map(|command| Action { text: "accept what was measured".to_owned(), command }),
            sections,
            metadata: vec![
                Metric::text("entries of", self.config_file.clone()),
                Metric::text("compared with", self.compared_with()),
            ],
            json: self.to_json(),
            ..Report::default()
        }
    }

    /// Names what the measured figures are compared with.
    fn compared_with(&self) -> String {
        match &*self.base {
            "" => "the accepted figures".to_owned(),
            base => format!("the accepted figures and {base}"),
        }
    }

    fn table(&self) -> Table {
        let has_base = self.rows.iter().any(|row| row.base.is_some());
        let to_base = format!("to {}", self.base);
        let mut columns = vec!["entry", "GPU", "result", "peak", "to accepted"];
        columns.extend(has_base.then_some(to_base.as_str()));
        columns.push("pool");
        let rows = self.rows.iter().map(|row| {
            let measured = row.measured.as_ref();
            let change = |other: &Option<LockLine>| {
                let change = measured.zip(other.as_ref()).map(|(now, then)| now.peak_change(then));
                let change = change.map(|change| i64::try_from(change).unwrap_or(i64::MAX));
                change.map_or(Value::Missing("none"), Value::Change)
            };
            let mut cells = vec![
                Value::Text(row.entry.clone()),
                Value::Text(row.gpu.clone()),
                Value::Text(row.result().to_owned()),
                row.peak_bytes().map_or(Value::Missing("unknown"), Value::Bytes),
                change(&row.accepted),
            ];
            cells.extend(has_base.then(|| change(&row.base)));
            cells.push(
                row.peak_bytes()
                    .map_or(Value::Missing("unknown"), |_| Value::Bytes(row.limit_bytes)),
            );
            cells
        });
        Table::new(&columns, rows.collect(), "")
    }

    fn bars(&self) -> Vec<Bar> {
        let measured = self.rows.iter().filter_map(|row| Some((row, row.peak_bytes()?)));
        let bars = measured.map(|(row, peak_bytes)| Bar {
            label: row.name(),
            part_bytes: peak_bytes,
            whole_bytes: row.limit_bytes,
            ..Bar::default()
        });
        bars.collect()
    }
}

//! The hosts of a program: what each came to, and where they differ.

use crate::analysis::{HostSummary, HostsSummary, ProgramMismatch, RunSummary};
use crate::report::phrases::{at_line, fits_phrase};
use crate::report::{Content, Section, Table, Value};

/// Programs that a sentence names.
const MAX_PROGRAMS_NAMED: usize = 3;
/// A difference that is worth telling.
const MIN_DIFFERENCE_BYTES: u64 = 1 << 20;

/// Says on which host, where there are several; begins with a space.
pub(super) fn on_host(summary: &RunSummary) -> String {
    match &summary.hosts {
        Some(hosts) => format!(" of host {}", hosts.critical_host),
        None => String::new(),
    }
}

/// One row for each host that was run.
pub(in crate::report) fn section(summary: &RunSummary) -> Option<Section> {
    let hosts = summary.hosts.as_ref()?;
    let cells = |host: &HostSummary| {
        [
            Value::Text(represented(host)),
            Value::Bytes(host.peak_bytes),
            Value::Text(fits_phrase(host.fits).to_owned()),
            Value::Text(difference(host)),
        ]
    };
    // Neighbors that are alike, and stand for no others, are one row.
    let alike = hosts.runs.chunk_by(|one, other| {
        one.represents.is_empty() && other.represents.is_empty() && cells(one) == cells(other)
    });
    let rows = alike.map(|alike| {
        let numbers: Vec<u32> = alike.iter().map(|host| host.host).collect();
        let number = Value::Text(number_ranges(&numbers));
        [&[number][..], &cells(&alike[0])[..]].concat()
    });
    let columns = ["host", "represents", "peak", "result", "largest difference"];
    let table = Table::new(&columns, rows.collect(), note(hosts));
    let title = format!(
        "{} hosts with {} GPU{} each",
        hosts.count,
        hosts.gpus_per_host,
        if hosts.gpus_per_host == 1 { "" } else { "s" }
    );
    Some(Section::new(title, Content::Table(table)))
}

/// Describes a mismatch in a clause.
pub(in crate::report) fn mismatch_clause(mismatch: &ProgramMismatch) -> String {
    let (one, other) = mismatch.hosts;
    let does = |program: &Option<String>| match program {
        Some(program) => format!("executes `{program}`"),
        None => "executes nothing more".to_owned(),
    };
    let what = match &mismatch.programs {
        (Some(name), Some(same)) if name == same => {
            format!(
                "host {one} and host {other} execute different programs that are both called `{name}`"
            )
        }
        (ones, others) => {
            let (ones, others) = (does(ones), does(others));
            format!("host {one} {ones} where host {other} {others}")
        }
    };
    let what =
        format!("{what} (execution {} of the programs that both take part in)", mismatch.execution);
    match &mismatch.placeholder {
        None => format!(
            "{what}: on the cluster they would wait for each other. Let every host execute the same programs in the \
             same order, whatever `jax.process_index()` is"
        ),
        Some(site) => format!(
            "{what}, but a value that was not computed decides what runs{}: it cannot be told whether they do so on the \
             cluster, where they would wait for each other",
            at_line(site)
        ),
    }
}

fn represented(host: &HostSummary) -> String {
    match host.represents.as_slice() {
        [] => String::new(),
        hosts => number_ranges(hosts),
    }
}

/// Says by what the memory of a host differs most from that of the host that represents most.
fn difference(host: &HostSummary) -> String {
    match host.differences.first() {
        Some(one) if one.bytes.unsigned_abs() >= MIN_DIFFERENCE_BYTES => {
            format!("{} {}", Value::Change(one.bytes), one.owner.label())
        }
        _ => String::new(),
    }
}

/// Names the programs that only one host executes.
fn own_programs(host: &HostSummary) -> Option<String> {
    let names = host.own_programs.iter().take(MAX_PROGRAMS_NAMED);
    let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    let more = match host.own_programs.len() > MAX_PROGRAMS_NAMED {
        true => " and others",
        false => "",
    };
    (!names.is_empty()).then(|| {
        let names = names.join(", ");
        format!("only host {} executes {names}{more}; ", host.host)
    })
}

fn note(hosts: &HostsSummary) -> String {
    let mut note = match hosts.runs.iter().any(|host| host.initialized) {
        true => String::new(),
        false => {
            "the program does not call `jax.distributed.initialize`, so each host runs alone; "
                .to_owned()
        }
    };
    if !hosts.not_run.is_empty() {
        let numbers = number_ranges(&hosts.not_run);
        note += &match hosts.not_run.len() {
            1 => format!("host {numbers} was not run (`--host`); "),
            _ => format!("hosts {numbers} were not run (`--host`); "),
        };
    }
    note.extend(hosts.runs.iter().filter_map(own_programs));
    note + &format!("the rest of this report is about host {}", hosts.critical_host)
}

/// Writes ascending numbers as ranges, such as `1-3, 7`.
fn number_ranges(numbers: &[u32]) -> String {
    let runs = numbers.chunk_by(|one, next| one + 1 == *next);
    let runs = runs.map(|run| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    });
    runs.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_ranges() {
        assert_eq!(number_ranges(&[1, 2, 3, 7, 9, 10]), "1-3, 7, 9-10");
        assert_eq!(number_ranges(&[]), "");
    }

    #[test]
    fn different_programs_of_one_name_are_told_so() {
        let name = || Some("jit_step".to_owned());
        let clause = mismatch_clause(&ProgramMismatch {
            hosts: (0, 1),
            execution: 1,
            programs: (name(), name()),
            placeholder: None,
        });
        assert!(
            clause.starts_with("host 0 and host 1 execute different programs that are both called"),
            "{clause}"
        );
    }

    #[test]
    fn a_mismatch_names_hosts_and_programs() {
        let clause = mismatch_clause(&ProgramMismatch {
            hosts: (0, 3),
            execution: 5,
            programs: (Some("jit_eval".to_owned()), None),
            placeholder: None,
        });
        assert!(
            clause.starts_with("host 0 executes `jit_eval` where host 3 executes nothing more"),
            "{clause}"
        );
        assert!(clause.contains("they would wait for each other"), "{clause}");
    }

    #[test]
    fn what_a_placeholder_decides_is_no_deadlock() {
        let clause = mismatch_clause(&ProgramMismatch {
            hosts: (0, 1),
            execution: 8,
            programs: (Some("jit_step".to_owned()), None),
            placeholder: Some("/home/me/train.py:9 (<module>)".to_owned()),
        });
        assert!(clause.contains("it cannot be told whether they do so on the cluster"), "{clause}");
    }
}

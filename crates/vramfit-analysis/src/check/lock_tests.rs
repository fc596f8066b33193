use super::*;

fn line(entry: &str, gpu: &str, jax: &str, peak_bytes: u64) -> LockLine {
    LockLine {
        key: LockKey { entry: entry.to_owned(), gpu: gpu.to_owned(), jax: jax.to_owned() },
        figures: Figures { peak_bytes, steady_state_bytes: 10, temp_bytes: 20 },
        plugin: "cuda13-0.10.2".to_owned(),
        programs: "0123abcd".to_owned(),
        libraries: BTreeMap::new(),
        whole_run: None,
    }
}

fn lock(lines: &[LockLine]) -> Lock {
    let mut lock = Lock::default();
    for line in lines {
        lock.accept(line.clone());
    }
    lock
}

#[test]
fn a_lock_reads_what_it_writes_in_order() {
    let lock = lock(&[
        line("train", "t4", "0.10.2", 100),
        line("eval", "l4", "0.10.2", 200),
        line("train", "l4x2", "0.9.2", 300),
    ]);
    let text = lock.to_text();
    let entries: Vec<&str> = text.lines().filter(|line| line.contains("sum=")).collect();
    assert!(entries[0].starts_with("eval l4 jax=0.10.2 "));
    assert!(entries[1].starts_with("train l4x2 jax=0.9.2 "));
    assert_eq!(Lock::parse(&text).expect("its own text"), lock);
}

#[test]
fn what_is_known_of_a_whole_run_is_read_and_kept() {
    let of = |whole_run| LockLine { whole_run, ..line("a", "t4", "0.10.2", 1) };
    let known = [
        Some(WholeRun::Peak(5)),
        Some(WholeRun::Steady(4)),
        Some(WholeRun::TimeLimit(120)),
        Some(WholeRun::Failed),
        None,
    ];
    for (index, before) in known.iter().enumerate() {
        let written = lock(&[of(*before)]);
        assert_eq!(Lock::parse(&written.to_text()).expect("its own text"), written);
        for (other, after) in known.iter().enumerate() {
            let mut lock = written.clone();
            lock.accept(of(*after));
            let kept = lock.lines().next().expect("a line").whole_run;
            // What tells less than before does not replace it; of those that tell nothing, the first that says why stays.
            let expected = match (before, after) {
                (None, after) => after,
                (before, _) if index < 2 && other > index => before,
                (before, _) if index >= 2 && other >= 2 => before,
                (_, after) => after,
            };
            assert_eq!(kept, *expected, "{before:?}, then {after:?}");
        }
    }
}

#[test]
fn the_line_of_the_release_is_found_or_else_the_newest() {
    let lock = lock(&[line("a", "t4", "0.9.2", 1), line("a", "t4", "0.10.2", 2)]);
    let peak = |jax| lock.find("a", "t4", jax).map(|line| line.figures.peak_bytes);
    assert_eq!(peak("0.9.2"), Some(1));
    assert_eq!(peak("0.12.0"), Some(2));
    assert_eq!(lock.find("a", "l4", "0.9.2"), None);
}

#[test]
fn a_line_changes_only_with_its_bytes_or_versions() {
    let mut lock = lock(&[line("a", "t4", "0.10.2", 1)]);
    let before = lock.to_text();
    let other_program =
        LockLine { programs: "ffffffff".to_owned(), ..line("a", "t4", "0.10.2", 1) };
    lock.accept(other_program);
    assert_eq!(lock.to_text(), before);
    let replaced = lock.accept(line("a", "t4", "0.10.2", 3));
    assert_eq!(replaced.map(|line| line.figures.peak_bytes), Some(1));
    assert_ne!(lock.to_text(), before);
}

#[test]
fn what_is_no_usable_lock_says_why() {
    let good = lock(&[line("a", "t4", "0.10.2", 1), line("b", "t4", "0.10.2", 2)]).to_text();
    let other = lock(&[line("a", "t4", "0.10.2", 9)]).to_text();
    let last_entry = |text: &str| {
        let mut entries = text.lines().filter(|line| line.contains("sum="));
        entries.next_back().expect("has lines").to_owned()
    };
    let (other_line, last) = (last_entry(&other), last_entry(&good));
    let end = good.find(&last).expect("it has it") + last.len();
    for (text, part) in [
        (String::new(), "not a lock file"),
        ("version = 1\n[[package]]\n".to_owned(), "not a lock file"),
        (good.replace("vramfit.lock 1", "vramfit.lock 2"), "newer vramfit"),
        (good.replace("vramfit.lock 1", "vramfit.lock 0"), "not a lock file"),
        (good.replace("peak=2", "peak=3"), "`vramfit.lock:7` was edited by hand"),
        (good.replace(" sum=", " total="), "damaged or truncated"),
        (good[..end - 4].to_owned(), "`vramfit.lock:7` is damaged or truncated"),
        (good[..end - 30].to_owned(), "damaged or truncated"),
        (good.replace(&last, &format!("<<<<<<< HEAD\n{last}")), "conflict marker"),
        (format!("<<<<<<< HEAD\n{good}"), "conflict marker"),
        (format!("{good}\n{other_line}\n"), "two branches have accepted different bytes"),
    ] {
        let error = Lock::parse(&text).expect_err(part);
        assert!(error.message().contains(part), "{part}: {}", error.message());
        assert!(error.hint_text().is_some(), "{part}");
    }
    // The same line twice, as a merge may leave it, is one.
    Lock::parse(&format!("{good}\n{last}\n")).expect("both say the same");
}

#[test]
fn an_update_leaves_out_what_cannot_be_used() {
    let good = lock(&[line("a", "t4", "0.10.2", 1), line("b", "t4", "0.10.2", 2)]).to_text();
    let (kept, problems) = Lock::parse_lines(&good.replace("peak=2", "peak=3")).expect("a lock");
    assert_eq!(kept.lines().count(), 1);
    assert_eq!(problems.len(), 1);
}

#[test]
fn the_last_line_never_changes() {
    let lines = [line("a", "t4", "0.10.2", 1), line("b", "t4", "0.10.2", 2)];
    for count in 0..=lines.len() {
        let text = lock(&lines[..count]).to_text();
        assert!(text.ends_with("\n\n# End of the lock file.\n"), "{text}");
        assert_eq!(text.matches("# End").count(), 1);
    }
}

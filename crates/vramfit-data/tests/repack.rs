//! What goes wrong while a file is repacked is noticed, and leaves the place as it was.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use vramfit_core::{Bytes, Error, ErrorKind};
use vramfit_data::repack::{
    Chunk, OutputOptions, Phase, Progress, RepackOptions, RepackPlan, Shuffle, plan, repack,
};
use vramfit_data::write::{
    Compression, Content, Dataset, Number, Storage, WriteTask, estimate_file_size, write,
};

const ROWS: u64 = 100_000;

/// Writes a file of numbers in tiny chunks.
fn file(folder: &Path) -> PathBuf {
    let path = folder.join("old.h5");
    let storage = Storage::Chunked { rows: 100, compression: Compression::Gzip(1) };
    let content = Content {
        datasets: vec![Dataset::new("x", Number::U32, vec![ROWS, 20], storage)],
        ..Content::default()
    };
    let source = |rows: std::ops::Range<u64>, out: &mut [Vec<u8>]| {
        for number in rows.start * 20..rows.end * 20 {
            out[0].extend((number as u32).to_le_bytes());
        }
        Ok(())
    };
    let expected = estimate_file_size(&content, &source).expect("rows that can be stored");
    let task = WriteTask {
        path: &path,
        content,
        purpose: "a test",
        options: vramfit_data::write::WriteOptions::default(),
        threads: 1,
        expected,
    };
    write(task, &source, &mut |_| {}).expect("a file to repack");
    path
}

fn planned(path: &Path) -> RepackPlan {
    let options = RepackOptions {
        datasets: Vec::new(),
        chunk: Chunk::Default,
        compression: Some(Compression::None),
        shuffle: Shuffle::Auto,
        memory: Bytes(4 << 20),
        threads: 2,
    };
    plan(path, &options).expect("a file that can be repacked")
}

const NEW: OutputOptions = OutputOptions { force: false, in_place: false };

/// Repacks a file while `meanwhile` happens, once, at the first step that suits it.
fn fails(path: &Path, meanwhile: &(dyn Fn(Progress) -> bool + Sync)) -> Error {
    let folder = path.parent().expect("it is in a directory");
    let before = std::fs::read_dir(folder).map_or(0, Iterator::count);
    let plan = planned(path);
    let target = folder.join("new.h5");
    let mut done = false;
    let result = repack(&plan, &target, NEW, &mut |progress| {
        done = done || meanwhile(progress);
    });
    assert!(done);
    assert!(!target.exists());
    let after = std::fs::read_dir(folder).map_or(0, Iterator::count);
    assert_eq!(before, after, "nothing is left");
    result.expect_err("something went wrong")
}

#[test]
fn a_file_that_changes_meanwhile_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path());
    let append = |_: Progress| {
        let file = std::fs::File::options().append(true).open(&path).unwrap();
        std::io::Write::write_all(&mut &file, b"more").unwrap();
        true
    };
    let error = fails(&path, &append);
    assert_eq!(error.kind(), ErrorKind::FileChanged);
    assert!(error.message().ends_with("changed while it was being read"));
}

#[test]
fn a_file_that_is_exchanged_meanwhile_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path());
    let exchange = |progress: Progress| {
        if progress.phase != Phase::Compare {
            return false;
        }
        let other = path.with_extension("other");
        std::fs::copy(&path, &other).unwrap();
        std::fs::rename(&other, &path).unwrap();
        true
    };
    assert_eq!(fails(&path, &exchange).kind(), ErrorKind::FileChanged);
}

#[test]
fn a_file_that_is_cut_short_meanwhile_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path());
    let cut = |_: Progress| {
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(5000).unwrap();
        true
    };
    let error = fails(&path, &cut);
    assert!(matches!(error.kind(), ErrorKind::InvalidFile | ErrorKind::FileChanged), "{error}");
}

#[test]
fn damage_on_the_way_to_the_disk_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path());
    let new = folder.path().to_owned();
    let damage = |progress: Progress| {
        if progress.phase != Phase::Write || progress.done < progress.total {
            return false;
        }
        // All rows are in the new file, which has no name yet: one bit in the middle of them changes.
        let numbers = std::fs::read_dir("/proc/self/fd").unwrap();
        for number in numbers.flatten().map(|entry| entry.path()) {
            let Ok(place) = std::fs::read_link(&number) else {
                continue;
            };
            if place.starts_with(&new) && !place.ends_with("old.h5") {
                let file = std::fs::File::options().read(true).write(true).open(&number).unwrap();
                let mut byte = [0];
                file.read_exact_at(&mut byte, 1 << 20).unwrap();
                file.write_all_at(&[byte[0] ^ 4], 1 << 20).unwrap();
                return true;
            }
        }
        false
    };
    let error = fails(&path, &damage);
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert!(error.message().contains("differs from what was read"));
    assert!(error.cause_text().unwrap().contains("of `/x` differ"));
}

#[test]
fn a_name_that_is_taken_meanwhile_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path());
    let plan = planned(&path);
    let target = folder.path().join("new.h5");
    let result = repack(&plan, &target, NEW, &mut |_| {
        std::fs::write(&target, "mine").unwrap();
    });
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.message().contains("was created in the meantime"));
    assert_eq!(std::fs::read(&target).unwrap(), b"mine");
}

#[test]
fn memory_that_is_too_small_for_a_chunk_is_refused_with_what_is_enough() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path());
    let options = |memory| RepackOptions {
        datasets: Vec::new(),
        chunk: Chunk::Rows(50_000),
        compression: None,
        shuffle: Shuffle::Auto,
        memory: Bytes(memory),
        threads: 8,
    };
    let error = plan(&path, &options(1 << 20)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let hint = error.hint_text().unwrap();
    let enough: u64 =
        hint.split(|c: char| !c.is_ascii_digit()).find_map(|part| part.parse().ok()).unwrap();
    let plan = plan(&path, &options(enough << 20)).unwrap();
    assert_eq!(plan.threads, 1);
    assert!(plan.memory <= Bytes(enough << 20));
}

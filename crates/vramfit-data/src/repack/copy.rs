//! Copies rows from the old file to the new one, and reads them back to verify them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use vramfit_core::{Bytes, Error, ErrorKind, Result};

use super::OutputOptions;
use super::copy_pass;
use super::manifest::FileManifest;
use super::plan::RepackPlan;
use crate::digest::digest;
use crate::hdf5::Container;
use crate::read::{Dataset as SourceDataset, RowReader};
use crate::source::{Access, FileFingerprint, Source, read_metadata};
use crate::write::{
    self, Content, Dataset, Piece, PieceOrder, SectionWrite, Storage, WriteTask, write_sections,
};

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Rows are read, stored anew and written.
    Write,
    /// The new file is read back and compared.
    Compare,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub phase: Phase,
    /// Bytes of elements that this was done to.
    pub done: u64,
    /// All of them.
    pub total: u64,
}

/// Bytes that are written between two moments at which the disk has to have them, so that a full or slow disk
/// is noticed early.
const SYNC_INTERVAL: Bytes = Bytes(256 << 20);

/// Writes the new file as planned, verifies it, and publishes it. Returns its size.
///
/// # Errors
/// `io` when the file exists or the disk refuses; `file-changed` when the old file was changed meanwhile;
/// `internal` when the new file does not hold what the old one does, which takes a bug or a bad disk.
pub fn repack(
    plan: &RepackPlan,
    target: &Path,
    options: OutputOptions,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Bytes> {
    let open = |path: &String| RowReader::raw(SourceDataset::open_in(&plan.container, path)?);
    let sources: Vec<RowReader> = plan.from.iter().map(open).collect::<Result<_>>()?;
    let total = plan.content.datasets.iter().map(Dataset::bytes).sum();
    let order = PieceOrder::new(&plan.content, &plan.sections)?;
    // They are counted when it is known that the disk has room for them all.
    let pieces = LazyLock::new(|| Pieces::of(&order, &plan.content));
    let source = |piece: &Piece, out: &mut [Vec<u8>]| {
        let (Some(rows), Some(out)) = (sources.get(piece.datasets.start), out.first_mut()) else {
            return Ok(());
        };
        out.resize((piece.rows.end - piece.rows.start) as usize * rows.row_bytes(), 0);
        rows.read(piece.rows.clone(), out)?;
        (pieces.digest(piece)).store(digest(out), Ordering::Relaxed);
        Ok(())
    };
    let like = match options.in_place {
        true => Some(read_metadata(&plan.source)?),
        false => None,
    };
    let task = WriteTask {
        path: target,
        content: plan.content.clone(),
        purpose: "repack",
        options: write::WriteOptions {
            force: options.force || options.in_place,
            resume: false,
            sync_every: SYNC_INTERVAL,
            once: true,
        },
        threads: plan.threads,
        expected: plan.new_bytes,
    };
    let progress = Mutex::new(progress);
    let show = |phase, done| {
        let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress(Progress { phase, done, total });
    };
    let mut sections = SectionWrite {
        sections: &plan.sections,
        ahead: copy_pass::max_pending(plan.threads),
        like,
        source: &source,
        check: &mut |path| {
            ensure_unchanged(plan)?;
            compare(plan, path, &order, &pieces, &|done| {
                show(Phase::Compare, done);
            })?;
            ensure_unchanged(plan)
        },
    };
    write_sections(task, &mut sections, &mut |done, _| {
        show(Phase::Write, pieces.before[done as usize]);
    })
}

/// What is known of all pieces, by their numbers.
struct Pieces {
    /// The bytes of all pieces before each, and of all.
    before: Vec<u64>,
    /// What stands for the bytes of each, as they were read.
    digests: Vec<AtomicU64>,
}

impl Pieces {
    fn of(order: &PieceOrder, content: &Content) -> Self {
        let (mut before, mut bytes) = (vec![0], 0);
        for number in 0..order.pieces {
            let Piece { datasets, rows, .. } = order.piece(number);
            bytes += (rows.end - rows.start) * content.datasets[datasets.start].row_bytes();
            before.push(bytes);
        }
        Pieces { digests: (0..order.pieces).map(|_| AtomicU64::new(0)).collect(), before }
    }

    fn digest(&self, piece: &Piece) -> &AtomicU64 {
        &self.digests[piece.number as usize]
    }
}

/// Reads the new file and compares it with what was read of the old one.
fn compare(
    plan: &RepackPlan,
    path: &Path,
    order: &PieceOrder,
    pieces: &Pieces,
    show: &(dyn Fn(u64) + Sync),
) -> Result<()> {
    let source = Source::open(path, Access::Read)?;
    let container = Container::open_own(Arc::new(source)).map_err(|error| differs(plan, &error))?;
    compare_structure(plan, &container)?;
    let open =
        |dataset: &Dataset| RowReader::raw(SourceDataset::open_in(&container, &dataset.path)?);
    let rows: Vec<RowReader> = (plan.content.datasets.iter().map(open))
        .collect::<Result<_>>()
        .map_err(|error| differs(plan, &error))?;
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        let mut bytes = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= order.pieces {
                return Ok(());
            }
            let piece = order.piece(number);
            let rows = &rows[piece.datasets.start];
            let length = (piece.rows.end - piece.rows.start) as usize * rows.row_bytes();
            bytes.resize(length, 0);
            let read = rows.read(piece.rows.clone(), &mut bytes);
            read.map_err(|error| differs(plan, &error))?;
            if digest(&bytes) != pieces.digest(&piece).load(Ordering::Relaxed) {
                let path = &plan.content.datasets[piece.datasets.start].path;
                let what = format!("rows {:?} of `/{path}` differ", piece.rows);
                return Err(differs(plan, &what));
            }
            show(done.fetch_add(length as u64, Ordering::Relaxed) + length as u64);
        }
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..plan.threads).map(|_| scope.spawn(work)).collect();
        let mut result = work();
        for other in others {
            match other.join() {
                Ok(done) => result = result.and(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        result
    })
}

/// Compares everything but rows: names, types, shapes, attributes, links, small values.
fn compare_structure(plan: &RepackPlan, new: &Container) -> Result<()> {
    let found = FileManifest::of(new).map_err(|error| differs(plan, &error))?;
    if let Some((path, error)) = found.refused.first() {
        return Err(differs(plan, &format!("`/{path}`: {error}")));
    }
    let streamed = found.streamed.into_iter();
    let mut found =
        Content { datasets: streamed.map(|streamed| streamed.dataset).collect(), ..found.content };
    let mut wanted = plan.content.clone();
    for content in [&mut found, &mut wanted] {
        content.datasets.sort_by(|a, b| a.path.cmp(&b.path));
        content.inline.sort_by(|a, b| a.path.cmp(&b.path));
        content.groups.sort_by(|a, b| a.path.cmp(&b.path));
        content.links.sort_by(|a, b| a.path.cmp(&b.path));
        for dataset in &mut content.datasets {
            dataset.storage = Storage::Contiguous;
            (dataset.shuffle, dataset.checksums) = (true, false);
        }
    }
    if let Some((was, is)) = (wanted.datasets.iter().zip(&found.datasets)).find(|(a, b)| a != b) {
        let what = format!("the dataset `/{}` differs: {was:?} became {is:?}", was.path);
        return Err(differs(plan, &what));
    }
    match wanted == found {
        true => Ok(()),
        false => Err(differs(plan, &"names, small values or attributes differ")),
    }
}

/// Refuses to go on with a file that was written to, cut short or exchanged.
fn ensure_unchanged(plan: &RepackPlan) -> Result<()> {
    if FileFingerprint::of(&plan.source)? == plan.fingerprint {
        return Ok(());
    }
    let path = plan.source.display();
    let what = format!("`{path}` changed while it was being read");
    Err(Error::new(ErrorKind::FileChanged, what)
        .hint("wait until the program that writes it has finished, and try again"))
}

fn differs(plan: &RepackPlan, what: &dyn std::fmt::Display) -> Error {
    let path = plan.source.display();
    let message = format!("the copy of `{path}` differs from what was read, and was deleted");
    Error::new(ErrorKind::Internal, message).cause(what)
}
